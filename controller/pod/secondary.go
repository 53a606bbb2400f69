package pod

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Replaceable reports whether a network may become another while the VM runs: the next migration attaches the
// card to it. A device of the node stays on its network.
func Replaceable(s *kubevirt.VirtualMachineInstanceSpec, n kubevirt.Network) bool {
	return vmspec.IsSecondary(n) && cardOf(s, n.Name).SRIOV == nil
}

// OtherNetworks reports whether an instance names another network for a card than the card's pod is on.
func OtherNetworks(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) bool {
	var has kubevirt.VirtualMachineInstanceSpec
	if json.Unmarshal([]byte(p.Annotations[vmspec.AnnotationVMI]), &has) != nil {
		return false
	}
	were := map[string]string{}
	for _, n := range has.Networks {
		if vmspec.IsSecondary(n) {
			were[n.Name] = n.Multus.NetworkName
		}
	}
	for _, n := range vmi.Spec.Networks {
		if was, known := were[n.Name]; known && vmspec.IsSecondary(n) && n.Multus.NetworkName != was {
			return true
		}
	}
	return false
}
