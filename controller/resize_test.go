package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestMachineResize: a VM whose template grows within its maximums gets more while it runs, by a resize of
// its pod, which Kubernetes checks.
func TestMachineResize(t *testing.T) {
	w := newWorld(t)
	n := w.node("resized")
	w.change(n, true, func() {
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		n.Status.Allocatable = n.Status.Capacity
	})
	always := kubevirt.RunStrategyAlways
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "resized", Namespace: namespace},
		Spec:       kubevirt.VirtualMachineSpec{RunStrategy: &always, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI("resized").Spec}},
	}
	d := &vm.Spec.Template.Spec.Domain
	d.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 4}
	d.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("256Mi")), MaxGuest: new(resource.MustParse("1Gi"))}
	if err := w.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	p := w.run(w.instanceOf("resized", nil), "resized")
	w.applies(p)
	w.change(vm, false, func() {
		vm.Spec.Template.Spec.Domain.CPU.Sockets = 3
		vm.Spec.Template.Spec.Domain.Memory.Guest = new(resource.MustParse("512Mi"))
	})
	until(w, p, p.Name, "a larger pod", func(p *corev1.Pod) bool {
		limits := p.Spec.Containers[0].Resources.Limits
		return limits.Cpu().Value() == 3 && limits.Memory().Value() == 512<<20
	})
	until(w, vm, "resized", "the change's condition", func(vm *kubevirt.VirtualMachine) bool {
		return vmCondition(vm, "HotVCPUChange").Status == "True" && vmCondition(vm, "HotMemoryChange").Status == "True"
	})
	w.applies(p)
	until(w, new(kubevirt.VirtualMachineInstance), "resized", "the larger guest", func(vmi *kubevirt.VirtualMachineInstance) bool {
		return vmi.Status.CurrentCPUTopology.Sockets == 3 && vmi.Status.Memory.GuestCurrent.String() == "512Mi"
	})
	until(w, vm, "resized", "no condition", func(vm *kubevirt.VirtualMachine) bool {
		return vmCondition(vm, "HotVCPUChange").Type == "" && vmCondition(vm, "RestartRequired").Type == ""
	})
	w.change(vm, false, func() { vm.Spec.Template.Spec.Domain.CPU.Sockets = 1 })
	until(w, vm, "resized", "RestartRequired", func(vm *kubevirt.VirtualMachine) bool {
		return vmCondition(vm, "RestartRequired").Status == "True"
	})
}

// applies does the kubelet's part of a resize.
func (w *world) applies(p *corev1.Pod) {
	w.Helper()
	w.change(p, true, func() {
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; s.Name == pod.Container {
				s.Resources = p.Spec.Containers[0].Resources.DeepCopy()
			}
		}
	})
}
