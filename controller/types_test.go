package controller_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (w *world) instancetype(name string, cpus uint32) *instancetype.VirtualMachineInstancetype {
	w.Helper()
	of := &instancetype.VirtualMachineInstancetype{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: instancetype.VirtualMachineInstancetypeSpec{
			CPU:    instancetype.CPUInstancetype{Guest: cpus},
			Memory: instancetype.MemoryInstancetype{Guest: resource.MustParse("256Mi")},
		},
	}
	if err := w.Create(w.Context(), of); err != nil {
		w.Fatal(err)
	}
	return of
}

// typedVM is a virtual machine that leaves its size to an instance type.
func (w *world) typedVM(name, ofType string) *kubevirt.VirtualMachine {
	w.Helper()
	template := kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI(name).Spec}
	template.Spec.Domain.Memory = nil
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy:  new(kubevirt.RunStrategyAlways),
			Instancetype: &kubevirt.InstancetypeMatcher{Name: ofType, Kind: "virtualmachineinstancetype"},
			Preference:   &kubevirt.PreferenceMatcher{Name: ofType},
			Template:     &template,
		},
	}
	if err := w.Create(w.Context(), vm); err != nil {
		w.Fatal(err)
	}
	return vm
}

// failure waits for a virtual machine's condition to say why it has no instance.
func (w *world) failure(name, reason, words string) {
	w.Helper()
	until(w, new(kubevirt.VirtualMachine), name, reason, func(vm *kubevirt.VirtualMachine) bool {
		c := vmCondition(vm, "Failure")
		return c.Reason == reason && strings.Contains(c.Message, words)
	})
}

// TestMachineOfTypes: a virtual machine waits for its instance type and preference,
// and stays what it was first made with, whatever becomes of those.
func TestMachineOfTypes(t *testing.T) {
	w := newWorld(t)
	w.node("typed")
	vm := w.typedVM("typed", "typed-large")
	w.failure("typed", "FailedFindInstancetype", `"typed-large" not found`)
	w.event("typed", "FailedFindInstancetype", "typed-large")
	large := w.instancetype("typed-large", 4)
	w.failure("typed", "FailedFindPreference", `"typed-large" not found`)
	cores := instancetype.Cores
	preference := &instancetype.VirtualMachineClusterPreference{
		ObjectMeta: metav1.ObjectMeta{Name: "typed-large"},
		Spec:       instancetype.VirtualMachinePreferenceSpec{CPU: &instancetype.CPUPreferences{PreferredCPUTopology: &cores}},
	}
	if err := w.Create(t.Context(), preference); err != nil {
		t.Fatal(err)
	}
	first := w.instanceOf("typed", nil)
	w.is(first, 4, "256Mi")
	if a := first.Annotations; a[kubevirt.InstancetypeAnnotation] != "typed-large" || a[kubevirt.ClusterPreferenceAnnotation] != "typed-large" {
		t.Errorf("annotations: %v", a)
	}
	w.run(first, "typed")
	got := w.printable("typed", kubevirt.VirtualMachineStatusRunning)
	revision := w.revisionOf(got)
	if c := vmCondition(got, "Failure"); c.Status == "True" {
		t.Errorf("failure: %+v", c)
	}

	w.change(large, false, func() { large.Spec.CPU.Guest = 2 })
	second := w.restarted(vm, first)
	w.is(second, 4, "256Mi")
	w.run(second, "typed")
	got = w.printable("typed", kubevirt.VirtualMachineStatusRunning)
	if now := w.revisionOf(got); now != revision || vmCondition(got, "RestartRequired").Status == "True" {
		t.Errorf("revision %s after %s, conditions %+v", now, revision, got.Status.Conditions)
	}

	w.instancetype("typed-small", 1)
	w.change(vm, false, func() { vm.Spec.Instancetype.Name = "typed-small" })
	until(w, vm, "typed", "RestartRequired and another revision", func(vm *kubevirt.VirtualMachine) bool {
		ref := vm.Status.InstancetypeRef
		return vmCondition(vm, "RestartRequired").Status == "True" &&
			ref != nil && ref.Name == "typed-small" && ref.ControllerRevisionRef != nil && ref.ControllerRevisionRef.Name != revision
	})
	third := w.restarted(vm, second)
	w.is(third, 1, "256Mi")
	w.run(third, "typed")

	w.change(vm, false, func() {
		vm.Spec.Instancetype.Name, vm.Spec.Instancetype.RevisionName = "typed-large", revision
	})
	w.is(w.restarted(vm, third), 4, "256Mi")
	if err := w.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
}

// restarted stops a virtual machine, whose instance runs, and starts it again.
func (w *world) restarted(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	w.Helper()
	p := w.podOf(vmi)
	w.change(vm, false, func() { vm.Spec.RunStrategy = new(kubevirt.RunStrategyHalted) })
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.exited(p, 0)
	w.printable(vm.Name, kubevirt.VirtualMachineStatusStopped)
	w.change(vm, false, func() { vm.Spec.RunStrategy = new(kubevirt.RunStrategyAlways) })
	return w.instanceOf(vm.Name, vmi)
}

// is checks an instance's size; its vCPUs are cores.
func (w *world) is(vmi *kubevirt.VirtualMachineInstance, cores uint32, memory string) {
	w.Helper()
	d := vmi.Spec.Domain
	if d.CPU == nil || d.CPU.Cores != cores || d.CPU.Sockets != 1 || d.Memory == nil || d.Memory.Guest.String() != memory {
		w.Errorf("cpu %+v, memory %+v; want %d cores and %s", d.CPU, d.Memory, cores, memory)
	}
}

// revisionOf is the name of a virtual machine's revision of its instance type, which
// is there and its own.
func (w *world) revisionOf(vm *kubevirt.VirtualMachine) string {
	w.Helper()
	ref := vm.Status.InstancetypeRef
	if ref == nil || ref.ControllerRevisionRef == nil || ref.Kind != "VirtualMachineInstancetype" {
		w.Fatalf("instancetypeRef: %+v", ref)
	}
	name := ref.ControllerRevisionRef.Name
	revision := new(appsv1.ControllerRevision)
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, revision); err != nil {
		w.Fatal(err)
	}
	if !metav1.IsControlledBy(revision, vm) || revision.Labels["instancetype.kubevirt.io/object-name"] != ref.Name {
		w.Errorf("revision: %+v", revision.ObjectMeta)
	}
	return name
}

// TestMachineConflictsWithType: what a VM says as well as its instance type keeps it
// from starting, until it no longer does.
func TestMachineConflictsWithType(t *testing.T) {
	w := newWorld(t)
	w.instancetype("conflicting", 1)
	vm := w.vm("conflicting", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() {
		vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "conflicting", Kind: "VirtualMachineInstancetype"}
		vm.Spec.RunStrategy = new(kubevirt.RunStrategyAlways)
	})
	w.failure("conflicting", "FailedCreate", "VM field(s) spec.template.spec.domain.memory conflicts with selected instance type")
	w.change(vm, false, func() { vm.Spec.Template.Spec.Domain.Memory = nil })
	if vmi := w.instanceOf("conflicting", nil); vmi.Spec.Domain.Memory.Guest.String() != "256Mi" {
		t.Errorf("memory: %+v", vmi.Spec.Domain.Memory)
	}
}

// TestMachineWaitsForRevision: a VM that names a revision which comes later, from a backup say, starts then.
func TestMachineWaitsForRevision(t *testing.T) {
	w := newWorld(t)
	template := kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI("revised").Spec}
	template.Spec.Domain.Memory = nil
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "revised", Namespace: namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy:  new(kubevirt.RunStrategyAlways),
			Instancetype: &kubevirt.InstancetypeMatcher{Name: "former", RevisionName: "revised-former"},
			Template:     &template,
		},
	}
	if err := w.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	w.failure("revised", "FailedFindInstancetype", `"revised-former" not found`)
	for _, probe := range []string{"revised-probe-1", "revised-probe-2"} { // its own write has been heard of, too
		w.vm(probe, kubevirt.RunStrategyAlways)
		w.instanceOf(probe, nil)
	}
	const former = `{"apiVersion":"instancetype.kubevirt.io/v1beta1","kind":"VirtualMachineClusterInstancetype",
		"spec":{"cpu":{"guest":1},"memory":{"guest":"256Mi"}}}`
	err := w.Create(t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "revised-former", Namespace: namespace},
		Data:       runtime.RawExtension{Raw: []byte(former)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if vmi := w.instanceOf("revised", nil); vmi.Spec.Domain.Memory.Guest.String() != "256Mi" {
		t.Errorf("memory: %+v", vmi.Spec.Domain.Memory)
	}
}
