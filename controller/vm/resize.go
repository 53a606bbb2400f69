package vm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// withoutSize returns a VirtualMachine without what a running instance can get more of. The result
// shares the rest with the VirtualMachine: read it only.
func withoutSize(vm *kubevirt.VirtualMachine) *kubevirt.VirtualMachine {
	sizeless, template := *vm, *vm.Spec.Template
	sizeless.Spec.Template = &template
	d := &template.Spec.Domain
	if d.CPU != nil {
		cpu := *d.CPU
		cpu.Sockets, d.CPU = 0, &cpu
	}
	if d.Memory != nil {
		memory := *d.Memory
		memory.Guest, d.Memory = nil, &memory
	}
	return &sizeless
}

// grown returns the spec of a running instance with the vCPUs and the memory of the VirtualMachine's
// template. Live is false if the template differs from the instance in more, has less, or has more
// than the instance's maximums.
func grown(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) (spec *kubevirt.VirtualMachineInstanceSpec, live bool) {
	if fixed, err := digest(withoutSize(vm)); err != nil || fixed != vmi.Annotations[pod.AnnotationFixed] {
		return nil, false
	}
	wants, spec := vm.Spec.Template.Spec.Domain, vmi.Spec.DeepCopy()
	if wants.CPU != nil {
		if spec.Domain.CPU == nil {
			return nil, false
		}
		has, sockets := spec.Domain.CPU, max(wants.CPU.Sockets, 1)
		if sockets != has.Sockets && (sockets < has.Sockets || sockets > has.MaxSockets) {
			return nil, false
		}
		has.Sockets = sockets
	}
	if wants.Memory == nil || wants.Memory.Guest == nil {
		return spec, true
	}
	has := spec.Domain.Memory
	if has == nil || has.Guest == nil {
		return nil, false
	}
	guest, before := *wants.Memory.Guest, *has.Guest
	if c := guest.Cmp(before); c != 0 && (c < 0 || has.MaxGuest == nil || guest.Cmp(*has.MaxGuest) > 0) {
		return nil, false
	}
	if request, requested := spec.Domain.Resources.Requests[corev1.ResourceMemory]; requested && guest.Cmp(before) > 0 {
		request.Add(guest)
		request.Sub(before)
		spec.Domain.Resources.Requests[corev1.ResourceMemory] = request
	}
	if guest.Cmp(before) > 0 {
		has.Guest = &guest
	}
	return spec, true
}

// resize gives a running instance the vCPUs and the memory of the template, if it can get them.
func (r *Reconciler) resize(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	if vmi == nil || vm.Spec.Template == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running {
		return nil
	}
	now, err := digest(vm)
	if err != nil {
		return err
	}
	if now == vmi.Annotations[pod.AnnotationTemplate] {
		return nil
	}
	spec, live := grown(vm, vmi)
	if !live {
		return nil
	}
	before := vmi.DeepCopy()
	vmi.Spec, vmi.Annotations[pod.AnnotationTemplate] = *spec, now
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("resize VMI %s: %w", vmi.Name, err))
	}
	r.events.Eventf(vm, vmi, corev1.EventTypeNormal, "Resized", "Resize", "Gave the running virtual machine instance %s what the template says", vmi.Name)
	return nil
}
