package controller_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

func (w *world) vm(name string, strategy kubevirt.VirtualMachineRunStrategy) *kubevirt.VirtualMachine {
	w.Helper()
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template:    &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI(name).Spec},
		},
	}
	if err := w.Create(w.Context(), vm); err != nil {
		w.Fatal(err)
	}
	return vm
}

func (w *world) printable(name string, want kubevirt.VirtualMachinePrintableStatus) *kubevirt.VirtualMachine {
	w.Helper()
	return until(w, new(kubevirt.VirtualMachine), name, "status "+string(want),
		func(vm *kubevirt.VirtualMachine) bool { return vm.Status.PrintableStatus == want })
}

// instanceOf waits for an instance of a name that is another than one before.
func (w *world) instanceOf(name string, before *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	w.Helper()
	return until(w, new(kubevirt.VirtualMachineInstance), name, "a new instance",
		func(vmi *kubevirt.VirtualMachineInstance) bool { return before == nil || vmi.UID != before.UID })
}

func TestMachineAlways(t *testing.T) {
	w := newWorld(t)
	w.node("always")
	vm := w.vm("always", kubevirt.RunStrategyAlways)
	first := w.instanceOf("always", nil)
	p := w.run(first, "always")
	got := w.printable("always", kubevirt.VirtualMachineStatusRunning)
	if !got.Status.Ready || !got.Status.Created || got.Status.RunStrategy != kubevirt.RunStrategyAlways {
		t.Errorf("status: %+v", got.Status)
	}
	// A guest that ends at once is held back, and then started anew.
	w.exited(p, 0)
	got = w.printable("always", kubevirt.VirtualMachineStatusCrashLoopBackOff)
	if f := got.Status.StartFailure; f == nil || f.ConsecutiveFailCount != 1 || f.LastFailedVMIUID != first.UID {
		t.Errorf("start failure: %+v", f)
	}
	second := w.instanceOf("always", first)
	p = w.run(second, "always")

	strategy := kubevirt.RunStrategyHalted
	w.change(vm, false, func() { vm.Spec.RunStrategy = &strategy })
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.exited(p, 0)
	w.printable("always", kubevirt.VirtualMachineStatusStopped)
	if err := w.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	untilGone(w, vm, "always")
}
