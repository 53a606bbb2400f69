package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Current returns the name of the pod that has an instance's guest. It is the first
// one until a migration has succeeded: the instance's status says which.
func Current(vmi *kubevirt.VirtualMachineInstance) string {
	switch m := vmi.Status.MigrationState; {
	case m == nil || m.SourcePod == "":
		return Name(vmi)
	case m.Completed && !m.Failed:
		return m.TargetPod
	default:
		return m.SourcePod
	}
}

// TargetName returns the name of the pod to which a migration moves an instance.
func TargetName(vmi *kubevirt.VirtualMachineInstance, migration *kubevirt.VirtualMachineInstanceMigration) string {
	return UniqueName(namePrefix+vmi.Name, maxName, string(vmi.UID)+"/"+string(migration.UID))
}

// Target changes a new pod of an instance to the target of a migration: it waits on
// another node for the guest. The pod becomes ready only while its guest runs, if nodes
// report that: Services must not reach it before.
func Target(
	p *corev1.Pod, vmi *kubevirt.VirtualMachineInstance, migration *kubevirt.VirtualMachineInstanceMigration, reports bool,
) {
	p.Name = TargetName(vmi, migration)
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, order.Annotation, string(migration.UID))
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, kubevirt.MigrationJobNameAnnotation, migration.Name)
	metav1.SetMetaDataLabel(&p.ObjectMeta, kubevirt.MigrationJobLabel, string(migration.UID))
	if reports {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: condition.VMReady})
	}
	// The instance's own constraints win: more can only restrict the choice of nodes.
	selector := maps.Clone(migration.Spec.AddedNodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, p.Spec.NodeSelector)
	if len(selector) > 0 {
		p.Spec.NodeSelector = selector
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.PodAntiAffinity == nil {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	apart := p.Spec.Affinity.PodAntiAffinity
	apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution,
		corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirt.CreatedByLabel: string(vmi.UID)}},
			TopologyKey:   corev1.LabelHostname,
		})
}
