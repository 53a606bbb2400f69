package order

import "encoding/json"

// The machine controls of network cards. Each takes one argument, the JSON of the type beside it,
// and answers with the [Card] as it is then. Each may be repeated.
const (
	CardAttach = "card-attach" // CardAttachment
	CardDetach = "card-detach" // Name
	CardStatus = "card-status" // Name
)

// CardAnnotation of an attachment pod has the name of the card whose network the pod has.
const CardAnnotation = "nodevirt.io/card"

// MaxCards bounds the cards that a running VM gets.
const MaxCards = 16

// CardAttachment is an order to attach a network card.
type CardAttachment struct {
	// Interface is the card as KubeVirt describes it.
	Interface json.RawMessage `json:"interface"`
	// Container is the ID of a container of the pod that has the card's network.
	Container string `json:"container"`
	// Device is the interface of that network in the pod, which is not eth0. Empty is the name that KubeVirt
	// gives it: "pod", and 11 digits of the SHA-256 of the card's name.
	Device string `json:"device,omitempty"`
	// Multiqueue gives the card a queue for each vCPU, if its model can have several.
	Multiqueue bool `json:"multiqueue,omitempty"`
}

// Card is what the node knows of a network card that a running VM has got.
type Card struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// MAC is the address of the guest's card.
	MAC string `json:"mac,omitempty"`
	// IPs are the addresses of the card that its network gave to the pod.
	IPs []string `json:"ips,omitempty"`
	// Container is the one of the order.
	Container string `json:"container,omitempty"`
}
