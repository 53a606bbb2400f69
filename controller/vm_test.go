package controller_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
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

// runningOnce creates a VM with runStrategy Once, and has its pod run on a node.
func (w *world) runningOnce(name, node string) (*kubevirt.VirtualMachine, *corev1.Pod) {
	w.Helper()
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: new(kubevirt.RunStrategyOnce),
			Template:    &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI(name).Spec},
		},
	}
	if err := w.Create(w.Context(), vm); err != nil {
		w.Fatal(err)
	}
	p := w.podOf(w.instanceOf(name, nil))
	w.bind(p, node)
	w.running(p)
	w.phase(name, kubevirt.Running)
	return vm, p
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
	// A guest that ends at once is held back, and then started again.
	w.exited(p, 0)
	got = w.printable("always", kubevirt.VirtualMachineStatusCrashLoopBackOff)
	if f := got.Status.StartFailure; f == nil || f.ConsecutiveFailCount != 1 || f.LastFailedVMIUID != first.UID {
		t.Errorf("start failure: %+v", f)
	}
	const why = "1 in a row ended within 1m0s of their start, or never ran. The last: The guest has powered off. The next start is at "
	i := slices.IndexFunc(got.Status.Conditions, func(c kubevirt.VirtualMachineCondition) bool { return c.Reason == "BackOff" })
	if i < 0 || !strings.HasPrefix(got.Status.Conditions[i].Message, why) {
		t.Errorf("conditions: %+v; want one that says %q", got.Status.Conditions, why)
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

// TestMachineRerunOnFailure: a guest that powers off stays off, one that failed
// is started again, also by a controller that was away.
func TestMachineRerunOnFailure(t *testing.T) {
	w := newWorld(t)
	w.node("rerun")
	w.vm("rerun", kubevirt.RunStrategyRerunOnFailure)
	first := w.instanceOf("rerun", nil)
	p := w.run(first, "rerun")
	w.stop()
	w.exited(p, 137)
	w.start()
	second := w.instanceOf("rerun", first)
	p = w.run(second, "rerun")
	w.exited(p, 0)
	w.printable("rerun", kubevirt.VirtualMachineStatusStopped)
	untilGone(w, new(kubevirt.VirtualMachineInstance), "rerun")
	w.looks()
	untilGone(w, new(kubevirt.VirtualMachineInstance), "rerun")
	w.printable("rerun", kubevirt.VirtualMachineStatusStopped)
}

// TestMachineAdopts: an instance of the VM's name that has no owner is the
// VM's, and one of another's is not.
func TestMachineAdopts(t *testing.T) {
	w := newWorld(t)
	w.node("adopts")
	orphan := w.vmi("adopts")
	w.run(orphan, "adopts")
	vm := w.vm("adopts", kubevirt.RunStrategyAlways)
	w.printable("adopts", kubevirt.VirtualMachineStatusRunning)
	w.change(orphan, false, func() {})
	if !metav1.IsControlledBy(orphan, vm) {
		t.Errorf("owners: %+v", orphan.OwnerReferences)
	}

	foreign := newVMI("foreign")
	owner := *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)
	foreign.OwnerReferences = []metav1.OwnerReference{owner}
	if err := w.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.vm("foreign", kubevirt.RunStrategyAlways)
	w.event("foreign", "FailedCreate", "VMI foreign belongs to VirtualMachine adopts")
}

// TestMachineRestartRequired: a changed template is for the next start.
func TestMachineRestartRequired(t *testing.T) {
	w := newWorld(t)
	w.node("changed")
	vm := w.vm("changed", kubevirt.RunStrategyAlways)
	w.run(w.instanceOf("changed", nil), "changed")
	w.printable("changed", kubevirt.VirtualMachineStatusRunning)
	required := func(vm *kubevirt.VirtualMachine) bool { return vmCondition(vm, "RestartRequired").Type != "" }
	w.change(vm, false, func() { vm.Spec.Template.Spec.Hostname = "other" })
	until(w, vm, "changed", "RestartRequired", required)
	w.change(vm, false, func() { vm.Spec.Template.Spec.Hostname = "" })
	until(w, vm, "changed", "no RestartRequired", func(vm *kubevirt.VirtualMachine) bool { return !required(vm) })
}

// TestMachineLeavesInstance: a VM that is deleted waits for no instance that is not, or no more, its own.
// The collector of garbage may have taken the reference off before the controller looked.
func TestMachineLeavesInstance(t *testing.T) {
	w := newWorld(t)
	w.node("leaves")
	vm := w.vm("leaves", kubevirt.RunStrategyAlways)
	vmi := w.instanceOf("leaves", nil)
	w.run(vmi, "leaves")
	w.printable("leaves", kubevirt.VirtualMachineStatusRunning)
	w.stop()
	w.delete(vm, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	// As Kubernetes' garbage collector does then.
	w.change(vmi, false, func() { vmi.OwnerReferences = nil })
	w.change(vm, false, func() { controllerutil.RemoveFinalizer(vm, metav1.FinalizerOrphanDependents) })
	w.start()
	untilGone(w, vm, "leaves")
	w.change(vmi, false, func() {})
	if vmi.DeletionTimestamp != nil {
		t.Errorf("the instance is being deleted, too")
	}
}
