package condition

// GuestsWithoutPods is a condition of a Node. It is True while guests run there whose pods the API server does not have, or
// after the API server's state has gone back, as by a restore of etcd. The message names the guests for people,
// [AnnotationGuests] for programs.
const GuestsWithoutPods = "nodevirt.io/GuestsWithoutPods"

// Reasons of GuestsWithoutPods.
const (
	ReasonPodsUnknown   = "PodsUnknown"   // guests run whose pods the API server does not have
	ReasonStateWentBack = "StateWentBack" // the API server's state is an earlier one
	ReasonPodsKnown     = "PodsKnown"
)

// AnnotationGuests is an annotation of a Node: the guests of GuestsWithoutPods, as [NodeGuests] in JSON. A Node has it while
// guests run there whose pods the API server does not have.
const AnnotationGuests = "nodevirt.io/guests-without-pods"

// MaxAnnotationGuests bounds AnnotationGuests, in bytes. All annotations of an object may have 256 KiB.
const MaxAnnotationGuests = 64 << 10

// OrderGuests is the machine control that answers with [NodeGuests] as JSON.
const OrderGuests = "node-guests"

// MaxNodeGuests bounds the answer of OrderGuests, in bytes.
const MaxNodeGuests = 4 << 20

// NodeGuests are guests of API servers' pods on a node: with OrderGuests all of them, with AnnotationGuests those whose pods
// the API server does not have.
type NodeGuests struct {
	Guests []NodeGuest `json:"guests"`
	// More is how many further guests the node has, for which there was no room.
	More int `json:"more,omitempty"`
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
