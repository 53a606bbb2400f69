package vmi

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// WithMACs returns a copy of an instance whose cards on secondary networks have the MAC addresses
// that the guest has: another pod of it would get others from its CNI plug-in.
func WithMACs(vmi *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	with := vmi.DeepCopy()
	for i := range with.Spec.Domain.Devices.Interfaces {
		one := &with.Spec.Domain.Devices.Interfaces[i]
		secondary := slices.ContainsFunc(vmi.Spec.Networks, func(n kubevirt.Network) bool { return n.Name == one.Name && vmspec.IsSecondary(n) })
		if !secondary || one.MacAddress != "" || one.Masquerade != nil {
			continue
		}
		for _, card := range vmi.Status.Interfaces {
			if card.Name == one.Name {
				one.MacAddress = card.MAC
			}
		}
	}
	return with
}

// keptMAC returns the MAC address that a card kept when its guest came to a pod by migration;
// empty if it has that of the pod's interface.
func keptMAC(p *corev1.Pod, card string) string {
	if p.Annotations[order.Annotation] == "" {
		return ""
	}
	var spec kubevirt.VirtualMachineInstanceSpec
	if decode.JSON([]byte(p.Annotations[vmspec.AnnotationVMI]), &spec) != nil {
		return ""
	}
	for _, one := range spec.Domain.Devices.Interfaces {
		if one.Name == card {
			return one.MacAddress
		}
	}
	return ""
}
