package pod

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// AnnotationCards is on an instance of a VirtualMachine, and has the JSON of [Cards].
	AnnotationCards = "vm.nodevirt.io/cards"
	// AnnotationStartCards is on the pod of a VM that starts with cards on secondary networks, and has their
	// names, separated by commas, in the order of their interfaces in the pod. A card that the VM has lost since has
	// an empty name.
	AnnotationStartCards = "vm.nodevirt.io/start-cards"
	// AnnotationPluggedCards is on the pod of a VM that has got network cards since it runs, and has the JSON of
	// [PluggedCard]s, as the node has confirmed them.
	AnnotationPluggedCards = "nodevirt.io/plugged-cards"
	// AnnotationProblem is on an attachment pod whose node does not give the VM the network card, and says why.
	AnnotationProblem = "vm.nodevirt.io/problem"
	// cardPrefix begins the names of the attachment pods of network cards.
	cardPrefix = "hp-card-"
)

// Cards are the network cards of a template that its instance has.
type Cards struct {
	// Start are the names of those that the instance was created with, and that its VM has not lost since.
	Start []string `json:"start"`
	// Got identify what the template says of those that the instance has got since, by their names.
	Got map[string]string `json:"got,omitempty"`
}

// PluggedCard is a network card that a VM has got since it runs.
type PluggedCard struct {
	Name string `json:"name"`
	// Container is the one of the attachment pod.
	Container string `json:"container"`
	// MAC is the address of the card, and IPs those that its network gave to the attachment pod.
	MAC string   `json:"mac,omitempty"`
	IPs []string `json:"ips,omitempty"`
}

// CardsOf returns the cards of a template that an instance has; false for an instance that an older version
// created, which gets none.
func CardsOf(vmi *kubevirt.VirtualMachineInstance) (Cards, bool) {
	var all Cards
	text, has := vmi.Annotations[AnnotationCards]
	return all, has && decode.JSON([]byte(text), &all) == nil
}

// CardOf returns the network card of a name; nil if a spec has none.
func CardOf(s *kubevirt.VirtualMachineInstanceSpec, name string) *kubevirt.Interface {
	all := s.Domain.Devices.Interfaces
	i := slices.IndexFunc(all, func(c kubevirt.Interface) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// NetworkOf returns the network of a name; nil if a spec has none.
func NetworkOf(s *kubevirt.VirtualMachineInstanceSpec, name string) *kubevirt.Network {
	i := slices.IndexFunc(s.Networks, func(n kubevirt.Network) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Networks[i]
}

// PluggableCard reports whether a VM that runs can get a network card of a spec, and lose it again.
func PluggableCard(s *kubevirt.VirtualMachineInstanceSpec, name string) bool {
	card, network := CardOf(s, name), NetworkOf(s, name)
	if card == nil || network == nil || !vmspec.IsSecondary(*network) || s.Domain.Devices.DisableHotplug {
		return false
	}
	if old := s.Domain.Devices.UseVirtioTransitional; old != nil && *old && (card.Model == "" || card.Model == "virtio") {
		return false
	}
	one := *card
	one.State = ""
	return vmspec.CheckHotplugCard(one) == nil
}

// LosableCard reports whether a VM that runs can lose a network card of a spec that it started with.
func LosableCard(s *kubevirt.VirtualMachineInstanceSpec, name string) bool {
	return PluggableCard(s, name) && CardOf(s, name).PciAddress == ""
}

// AbsentCards returns the names of the network cards that a spec says are absent.
func AbsentCards(s *kubevirt.VirtualMachineInstanceSpec) []string {
	var all []string
	for _, card := range s.Domain.Devices.Interfaces {
		if card.State == kubevirt.InterfaceStateAbsent {
			all = append(all, card.Name)
		}
	}
	return all
}

// RemoveCards removes network cards and their networks from a spec.
func RemoveCards(s *kubevirt.VirtualMachineInstanceSpec, names ...string) {
	s.Networks = slices.DeleteFunc(s.Networks, func(n kubevirt.Network) bool { return slices.Contains(names, n.Name) })
	s.Domain.Devices.Interfaces = slices.DeleteFunc(s.Domain.Devices.Interfaces,
		func(c kubevirt.Interface) bool { return slices.Contains(names, c.Name) })
}

// StartedWithCard reports whether the VM of a pod has started with a card on a secondary network. The cards of a
// pod from an older version are all of that kind.
func StartedWithCard(p *corev1.Pod, name string) bool {
	if _, known := p.Annotations[AnnotationStartCards]; !known {
		_, asked := p.Annotations[AnnotationNetworks]
		return asked
	}
	return StartNumber(p, name) > 0
}

// StartNumber returns the number of a card among those on secondary networks with which the VM of a pod has started,
// from 1; 0 if it has none of the name, or has lost it, or if the pod is from an older version.
func StartNumber(p *corev1.Pod, name string) int {
	if name == "" {
		return 0
	}
	return 1 + slices.Index(strings.Split(p.Annotations[AnnotationStartCards], ","), name)
}

// CardsToLose returns the names of the absent network cards of an instance with which its VM has started.
func CardsToLose(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod) []string {
	return slices.DeleteFunc(AbsentCards(&vmi.Spec), func(name string) bool {
		return StartNumber(own, name) == 0 || !LosableCard(&vmi.Spec, name)
	})
}

// SetLost notes that the VM of a pod has lost a card with which it started. The numbers of the others stay.
func SetLost(p *corev1.Pod, name string) {
	if i := StartNumber(p, name); i > 0 {
		names := strings.Split(p.Annotations[AnnotationStartCards], ",")
		names[i-1] = ""
		p.Annotations[AnnotationStartCards] = strings.Join(names, ",")
	}
}

// CardsToPlug returns the names of the network cards of an instance that its VM has not started with.
func CardsToPlug(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod) []string {
	var all []string
	for _, n := range vmi.Spec.Networks {
		card := CardOf(&vmi.Spec, n.Name)
		if card != nil && card.State != kubevirt.InterfaceStateAbsent && PluggableCard(&vmi.Spec, n.Name) && !StartedWithCard(own, n.Name) {
			all = append(all, n.Name)
		}
	}
	return all
}

// PluggedCards returns the network cards that the VM of a pod has got, as the node has confirmed them.
func PluggedCards(p *corev1.Pod) []PluggedCard {
	var all []PluggedCard
	_ = json.Unmarshal([]byte(p.Annotations[AnnotationPluggedCards]), &all) // the controller writes it
	return all
}

// SetPluggedCards notes these cards.
func SetPluggedCards(p *corev1.Pod, all []PluggedCard) error {
	if len(all) == 0 {
		delete(p.Annotations, AnnotationPluggedCards)
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[AnnotationPluggedCards] = string(text)
	return nil
}

// CardAttachment returns the pod that has the network of a card that the VM in pod own gets. The pod does nothing
// with the network. Former are as with [Attachment].
func CardAttachment(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, card string, from Holder, former ...types.UID) (*corev1.Pod, error) {
	p, err := attachment(vmi, own, held{card: card}, from, former)
	if err != nil {
		return nil, err
	}
	one := selection(NetworkOf(&vmi.Spec, card).Multus.NetworkName)
	one.Interface, one.MAC = vmspec.PluginInterface(card), macOf(cardOf(&vmi.Spec, card))
	text, err := json.Marshal([]network{one})
	if err != nil {
		return nil, err
	}
	p.Annotations[AnnotationNetworks] = string(text)
	p.Annotations[order.CardAnnotation] = card
	return p, nil
}

// HeldCard returns the name of the card whose network an attachment pod has; empty for one with a volume.
func HeldCard(p *corev1.Pod) string { return p.Annotations[order.CardAnnotation] }
