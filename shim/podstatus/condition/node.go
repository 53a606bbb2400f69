package condition

// GuestsWithoutPods is a condition of a Node. It is True while guests run there whose pods the API server does not have, or
// after the API server's state has gone back, as by a restore of etcd. The message names the guests.
const GuestsWithoutPods = "nodevirt.io/GuestsWithoutPods"

// Reasons of GuestsWithoutPods.
const (
	ReasonPodsUnknown   = "PodsUnknown"   // guests run whose pods the API server does not have
	ReasonStateWentBack = "StateWentBack" // the API server's state is an earlier one
	ReasonPodsKnown     = "PodsKnown"
)

// OrderGuests is the machine control that answers with [NodeGuests] as JSON.
const OrderGuests = "node-guests"

// MaxNodeGuests bounds the answer of OrderGuests, in bytes.
const MaxNodeGuests = 4 << 20

// NodeGuests are the guests of API servers' pods on a node, whether the API server has the pods or not.
type NodeGuests struct {
	Guests []NodeGuest `json:"guests"`
}

// NodeGuest is a guest that runs, with what identifies its pod and its disks.
type NodeGuest struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// VMI is the name of its instance; empty for a pod that the controller has not made.
	VMI string `json:"vmi,omitempty"`
	// PVCs are the names of those that the VM started with.
	PVCs []string `json:"pvcs,omitempty"`
}
