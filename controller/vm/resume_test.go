package vm

import (
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestResume: one instance goes on from a snapshot, and the next one boots. An annotation of the
// template has no effect.
func TestResume(t *testing.T) {
	g := newRig(t)
	g.add(always, withUUID, func(vm *kubevirt.VirtualMachine) {
		vm.Annotations = map[string]string{pod.AnnotationResume: "memory"}
		vm.Spec.Template.ObjectMeta.Annotations = map[string]string{pod.AnnotationResume: "always"}
	})
	g.reconcile()
	if vm, vmi := g.vm(), g.vmi(); vmi.Annotations[pod.AnnotationResume] != "memory" || vm.Annotations[pod.AnnotationResume] != "memory" {
		t.Errorf("VM %v, instance %v", vm.Annotations, vmi.Annotations)
	}
	g.reconcile()
	if vm := g.vm(); vm.Annotations[pod.AnnotationResume] != "" {
		t.Errorf("the VM's next instance goes on from %v, too", vm.Annotations)
	}
	next, err := instance(g.vm(), g.vm().Spec.Template)
	if err != nil || next.Annotations[pod.AnnotationResume] != "" {
		t.Errorf("%v, %v", next.Annotations, err)
	}
}
