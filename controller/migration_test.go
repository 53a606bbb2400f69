package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// TestMigrationToUnreachableNodes: a migration whose nodes do not answer fails and says
// so, the target's pod goes, and the guest runs on. A deleted migration goes.
func TestMigrationToUnreachableNodes(t *testing.T) {
	w := newWorld(t)
	w.node("migration-source")
	w.node("migration-target")
	vmi := newVMI("migrated")
	vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{
		Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
	}}
	if err := w.Create(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	source := w.podOf(vmi)
	w.bind(source, "migration-source")
	w.running(source)
	until(w, vmi, vmi.Name, "a VM that can be migrated", func(v *kubevirt.VirtualMachineInstance) bool {
		for _, c := range v.Status.Conditions {
			if c.Type == kubevirt.VirtualMachineInstanceIsMigratable && c.Status == corev1.ConditionTrue {
				return v.Status.Phase == kubevirt.Running && v.Status.MigrationMethod == kubevirt.BlockMigration
			}
		}
		return false
	})
	m := &kubevirt.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "move", Namespace: namespace},
		Spec:       kubevirt.VirtualMachineInstanceMigrationSpec{VMIName: vmi.Name},
	}
	if err := w.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.requests.take()
	target := until(w, new(corev1.Pod), pod.TargetName(vmi, m), "the target's pod", func(*corev1.Pod) bool { return true })
	if target.Annotations[order.Annotation] != string(m.UID) {
		t.Errorf("annotations: %v", target.Annotations)
	}
	w.bind(target, "migration-target")
	w.running(target)
	until(w, m, m.Name, "its failure", func(m *kubevirt.VirtualMachineInstanceMigration) bool {
		return m.Status.Phase == kubevirt.MigrationFailed
	})
	if s := m.Status.MigrationState; !strings.Contains(s.FailureReason, order.Identify) || s.TargetNode != "migration-target" || s.SourcePod != source.Name {
		t.Errorf("state: %+v", s)
	}
	until(w, target, target.Name, "the deletion of the target's pod", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.exited(target, 1)
	untilGone(w, target, target.Name)
	until(w, vmi, vmi.Name, "a VM that runs on", func(v *kubevirt.VirtualMachineInstance) bool {
		return v.Status.Phase == kubevirt.Running && v.Status.MigrationState.Failed && v.Status.NodeName == "migration-source"
	})
	if all := w.requests.take(); len(with(all, "/virtualmachineinstancemigrations/")) > 10 {
		t.Errorf("requests: %s", strings.Join(all, "\n"))
	}
	if err := w.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	untilGone(w, m, m.Name)
	if err := w.Delete(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	until(w, source, source.Name, "the deletion of its pod", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.exited(source, 0)
	untilGone(w, vmi, vmi.Name)
}
