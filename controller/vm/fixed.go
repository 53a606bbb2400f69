package vm

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// fixedDigest identifies what of a VirtualMachine a running instance cannot take over. T is the
// template with what the types add: another type of the same VM may differ in the size alone. Vmi is as of [digest].
func fixedDigest(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) (string, error) {
	return digestWithoutSize(vm, t, vmi, func(spec *kubevirt.VirtualMachineInstanceSpec) {
		spec.NodeSelector, spec.Affinity, spec.Tolerations = nil, nil, nil
		for i := range spec.Domain.Devices.Interfaces {
			spec.Domain.Devices.Interfaces[i].State = ""
		}
		for i, n := range spec.Networks {
			if pod.Replaceable(spec, n) {
				spec.Networks[i].Multus = new(kubevirt.MultusNetwork)
			}
		}
	})
}

// fixedDigestOf010 is fixedDigest as version 0.1.0 computes it. Its instances take over the size alone: one that
// it has started has the placement, the links and the secondary networks that its template had then.
func fixedDigestOf010(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) (string, error) {
	has := &vmi.Spec
	return digestWithoutSize(vm, t, vmi, func(spec *kubevirt.VirtualMachineInstanceSpec) {
		spec.NodeSelector, spec.Affinity, spec.Tolerations = has.NodeSelector, has.Affinity, has.Tolerations
		cards := spec.Domain.Devices.Interfaces
		for i := range cards {
			for _, card := range has.Domain.Devices.Interfaces {
				if card.Name == cards[i].Name {
					cards[i].State = card.State
				}
			}
		}
		for i, n := range spec.Networks {
			for _, network := range has.Networks {
				if network.Name == n.Name && pod.Replaceable(spec, n) && pod.Replaceable(has, network) {
					spec.Networks[i].Multus = network.Multus
				}
			}
		}
	})
}

// sameFixed reports whether an instance has what of a VirtualMachine it cannot take over while it runs. T is as of
// [fixedDigest].
func sameFixed(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) bool {
	made := vmi.Annotations[pod.AnnotationFixed]
	if now, err := fixedDigest(vm, t, vmi); err != nil || now == made {
		return err == nil
	}
	older, err := fixedDigestOf010(vm, t, vmi)
	return err == nil && older == made
}

// digestWithoutSize identifies a VirtualMachine without its size, after a change of its template's spec. Change may
// write to the spec's interfaces and networks, and must replace all else.
func digestWithoutSize(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
	change func(*kubevirt.VirtualMachineInstanceSpec),
) (string, error) {
	sizeless, template := *vm, *t
	template.Spec = withoutCards(template.Spec, vmi) // before the states of links go
	sizeless.Spec.Template, sizeless.Spec.Instancetype, sizeless.Spec.Preference = &template, nil, nil
	d := &template.Spec.Domain
	d.Devices.Interfaces = slices.Clone(d.Devices.Interfaces)
	template.Spec.Networks = slices.Clone(template.Spec.Networks)
	change(&template.Spec)
	if d.CPU != nil {
		cpu := *d.CPU
		cpu.Sockets, d.CPU = 0, &cpu
	}
	if d.Memory != nil {
		memory := *d.Memory
		memory.Guest, d.Memory = nil, &memory
	}
	if _, requested := d.Resources.Requests[corev1.ResourceMemory]; requested && vm.Spec.Instancetype != nil { // a part of the guest's
		d.Resources.Requests = maps.Clone(d.Resources.Requests)
		d.Resources.Requests[corev1.ResourceMemory] = resource.Quantity{}
	}
	return digest(&sizeless, vmi)
}
