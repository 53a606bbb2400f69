package vm

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
)

// TestSkipBackupHooks: a VirtualMachine's word reaches the instance when that starts and while it runs; the template's
// holds if the VirtualMachine says nothing.
func TestSkipBackupHooks(t *testing.T) {
	const key = config.AnnotationSkipBackupHooks
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) { metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, "true") })
	g.reconcile()
	g.phase(kubevirt.Running)
	want := func(want string) {
		t.Helper()
		if got := g.vmi().Annotations[key]; got != want {
			t.Errorf("the instance has %q, want %q", got, want)
		}
	}
	want("true")
	g.edit(func(vm *kubevirt.VirtualMachine) { delete(vm.Annotations, key) })
	want("")
	g.edit(func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.ObjectMeta.Annotations = map[string]string{key: "1"}
	})
	want("1")
	g.edit(func(vm *kubevirt.VirtualMachine) { metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, "false") })
	want("false")
	g.Writes()
	g.reconcile()
	g.expect("")
}
