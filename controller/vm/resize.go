package vm

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// grown returns the spec of a running instance with the vCPUs, the memory, the links of network cards, the secondary
// networks and the placement of the VirtualMachine's template: the next migration goes by the last two. T is the template with
// what the types add; nil stands for the template of a VirtualMachine without types. Live is false if the
// template differs from the instance in more, has less, or has more than the instance's maximums.
func grown(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) (spec *kubevirt.VirtualMachineInstanceSpec, live bool) {
	if t == nil {
		if vm.Spec.Instancetype != nil || vm.Spec.Preference != nil {
			return nil, false
		}
		t = vm.Spec.Template
	}
	if !sameFixed(vm, t, vmi) {
		return nil, false
	}
	wants, spec := t.Spec.Domain, vmi.Spec.DeepCopy()
	placed := t.Spec.DeepCopy()
	spec.NodeSelector, spec.Affinity, spec.Tolerations = placed.NodeSelector, placed.Affinity, placed.Tolerations
	start := withoutCards(t.Spec, vmi)
	for _, n := range start.Networks {
		i := slices.IndexFunc(spec.Networks, func(has kubevirt.Network) bool { return has.Name == n.Name })
		if i < 0 || !pod.Replaceable(spec, n) || spec.Networks[i].Multus.NetworkName == n.Multus.NetworkName {
			continue
		}
		if able, _ := instances.IsMigratable(vmi); !able {
			return nil, false
		}
		spec.Networks[i].Multus.NetworkName = n.Multus.NetworkName
	}
	for _, card := range start.Domain.Devices.Interfaces {
		if card.State == kubevirt.InterfaceStateAbsent && !pod.LosableCard(&start, card.Name) { // the VM keeps it until it ends
			return nil, false
		}
		has := pod.CardOf(spec, card.Name)
		if has != nil && has.State != kubevirt.InterfaceStateAbsent { // or it is on its way out
			has.State = card.State
		}
	}
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
	if request, requested := spec.Domain.Resources.Requests[corev1.ResourceMemory]; requested {
		most := request.DeepCopy()
		most.Add(guest)
		most.Sub(before)
		of, said := wants.Resources.Requests[corev1.ResourceMemory]
		switch {
		case vm.Spec.Instancetype == nil || !said:
			of = most
		case of.Cmp(request) < 0 || of.Cmp(most) > 0: // another part of the guest's memory
			return nil, false
		}
		spec.Domain.Resources.Requests[corev1.ResourceMemory] = of
	}
	if guest.Cmp(before) > 0 {
		has.Guest = &guest
	}
	return spec, true
}

// resize gives a running instance what [grown] returns.
// T is as of [grown].
func (r *Reconciler) resize(
	ctx context.Context, vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) error {
	if vmi == nil || vm.Spec.Template == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running {
		return nil
	}
	now, err := digest(vm, vmi)
	if err != nil {
		return err
	}
	lost := lostCards(vmi)
	if now == vmi.Annotations[pod.AnnotationTemplate] && len(lost) == 0 {
		return nil
	}
	spec, live := grown(vm, t, vmi)
	if !live {
		return nil
	}
	before := vmi.DeepCopy()
	vmi.Spec = *spec
	if err := dropCards(vmi, lost); err != nil {
		return err
	}
	fixed, err := fixedDigest(vm, cmp.Or(t, vm.Spec.Template), vmi)
	if err != nil {
		return err
	}
	if now, err = digest(vm, vmi); err != nil { // without the cards that it has lost
		return err
	}
	vmi.Annotations[pod.AnnotationTemplate], vmi.Annotations[pod.AnnotationFixed] = now, fixed
	instancetype.SetAnnotations(vmi.Annotations, vm)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("resize VMI %s: %w", vmi.Name, err))
	}
	r.events.Eventf(vm, vmi, corev1.EventTypeNormal, "Resized", "Resize", "Gave the running virtual machine instance %s what the template says", vmi.Name)
	return nil
}
