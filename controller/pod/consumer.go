package pod

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
)

// Consumer returns the pod that has Kubernetes bind PVCs of classes that wait for a pod, so that CDI fills them. The VM's
// own pod would run before that. The PVCs, all of the instance's, are bound on a node where the VM's pod can run, or
// on that where the VM runs. Owner is what the pod goes with. Scheduling is that of the RuntimeClass; nil for none.
func Consumer(
	vmi *kubevirt.VirtualMachineInstance, owner metav1.OwnerReference, pvcs []*corev1.PersistentVolumeClaim, scheduling *nodev1.Scheduling, around Surroundings, from Holder,
) (*corev1.Pod, error) {
	spec, err := from.spec("instance " + vmi.Name)
	if err != nil {
		return nil, err
	}
	of := []string{string(owner.UID)}
	for i, pvc := range pvcs {
		h := held{volume: fmt.Sprintf("pvc-%d", i), claim: pvc.Name, block: IsBlock(pvc)}
		h.mount(&spec.Containers[0])
		spec.Volumes = append(spec.Volumes, h.volumes()...)
		of = append(of, string(pvc.UID))
	}
	if node := vmi.Status.NodeName; node != "" {
		PlaceOn(&spec, node)
	} else {
		reserving, _ := withOverhead(vmi, around)
		asVM(&spec, reserving.Spec.DeepCopy(), scheduling, around)
	}
	spec.PriorityClassName = vmi.Spec.PriorityClassName
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: UniqueName(attachmentPrefix+vmi.Name, maxLabel, strings.Join(of, "/")), Namespace: vmi.Namespace,
			Labels: map[string]string{kubevirt.AppLabel: AttachmentLabelValue},
			// Not as its controller: it is no pod of a guest.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}},
		},
		Spec: spec,
	}, nil
}

// asVM has a pod need a node as that of an instance's VM.
func asVM(spec *corev1.PodSpec, s *kubevirt.VirtualMachineInstanceSpec, scheduling *nodev1.Scheduling, around Surroundings) {
	spec.NodeSelector, spec.Affinity, spec.Tolerations, spec.SchedulerName = nodeSelector(s, around), affinity(s, around), s.Tolerations, s.SchedulerName
	spec.TopologySpreadConstraints = spread(s, around)
	if scheduling != nil {
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		maps.Copy(spec.NodeSelector, scheduling.NodeSelector)
		spec.Tolerations = append(spec.Tolerations, scheduling.Tolerations...)
	}
	needs, has := resources(s, around).Requests, spec.Containers[0].Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request := needs[name]
		if least := has.Requests[name]; request.Cmp(least) > 0 {
			has.Requests[name] = request
		}
		if limit := has.Limits[name]; request.Cmp(limit) > 0 {
			has.Limits[name] = request
		}
	}
}

// ConsumerOwner returns the owner of an instance's own pods of [Consumer].
func ConsumerOwner(vmi *kubevirt.VirtualMachineInstance) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: kubevirt.GroupVersion.String(), Kind: kubevirt.VirtualMachineInstanceGroupVersionKind.Kind, Name: vmi.Name, UID: vmi.UID,
	}
}

// IsConsumer reports whether a pod is of [Consumer], with an owner. The cache keeps what this reads.
func IsConsumer(p *corev1.Pod, owner types.UID) bool {
	return strings.HasPrefix(p.Name, attachmentPrefix) && metav1.GetControllerOf(p) == nil &&
		len(p.OwnerReferences) == 1 && p.OwnerReferences[0].UID == owner
}
