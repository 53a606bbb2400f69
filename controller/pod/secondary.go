package pod

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Replaceable reports whether a network may become another while the VM runs: the next migration attaches the
// card to it. A device of the node stays on its network.
func Replaceable(s *kubevirt.VirtualMachineInstanceSpec, n kubevirt.Network) bool {
	return vmspec.IsSecondary(n) && cardOf(s, n.Name).SRIOV == nil
}

// OtherNetworks reports whether an instance names another network for a card than the card's pod has asked Multus for.
func OtherNetworks(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) bool {
	var asked []network
	if decode.JSON([]byte(p.Annotations[AnnotationNetworks]), &asked) != nil {
		return false
	}
	number := 0
	for _, n := range vmi.Spec.Networks {
		if !vmspec.IsSecondary(n) {
			continue
		}
		number++
		if !StartedWithCard(p, n.Name) {
			continue
		}
		device := deviceOf(&vmi.Spec, n.Name, cmp.Or(StartNumber(p, n.Name), number))
		wants := selection(n.Multus.NetworkName)
		for _, has := range asked {
			if has.Interface != device {
				continue
			}
			if has.Name != wants.Name || cmp.Or(has.Namespace, vmi.Namespace) != cmp.Or(wants.Namespace, vmi.Namespace) {
				return true
			}
		}
	}
	return false
}

// deviceOf returns the name in the pod of the interface of a secondary network, which count from 1.
func deviceOf(s *kubevirt.VirtualMachineInstanceSpec, name string, number int) string {
	if cardOf(s, name).Binding != nil {
		return vmspec.PluginInterface(name)
	}
	return "net" + strconv.Itoa(number)
}
