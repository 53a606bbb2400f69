package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// AnnotationLinks is on the pod of a VM whose instance sets the states of its cards' links, and has the names of
// the cards that the node has confirmed to have none, separated by commas.
const AnnotationLinks = "nodevirt.io/links-down"

// DownCards returns the names of the cards that have no link by an instance's spec, sorted. Set is whether the
// spec says anything of links.
func DownCards(s *kubevirt.VirtualMachineInstanceSpec) (names []string, set bool) {
	for _, card := range s.Domain.Devices.Interfaces {
		set = set || card.State != ""
		if card.State == kubevirt.InterfaceStateLinkDown {
			names = append(names, card.Name)
		}
	}
	slices.Sort(names)
	return names, set
}

// Links returns the names of the cards of a pod's VM that have no link, sorted. Known is whether the node
// has confirmed them.
func Links(p *corev1.Pod) (down []string, known bool) {
	text, known := p.Annotations[AnnotationLinks]
	return slices.Sorted(strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' })), known
}

// LinkState returns the state of the link of a card of a running VM: by default that with which the VM started.
func LinkState(p *corev1.Pod, card string, unplugged bool) kubevirt.InterfaceState {
	if down, known := Links(p); known {
		unplugged = slices.Contains(down, card)
	}
	if unplugged {
		return kubevirt.InterfaceStateLinkDown
	}
	return kubevirt.InterfaceStateLinkUp
}
