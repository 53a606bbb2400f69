// Package order has the machine controls by which a running VM gets and loses disks, and
// their arguments and answers, all JSON.
package order

import "encoding/json"

// The machine controls. Each takes one argument, the JSON of the type beside it, and
// answers with the [Disk] as it is then. Each may be repeated.
const (
	Attach = "disk-attach" // Attachment
	Detach = "disk-detach" // Name
	Status = "disk-status" // Name
	Grow   = "disk-grow"   // Growth
)

// Annotation of a pod has the UID of the VM's pod that may have the pod's volumes.
const Annotation = "nodevirt.io/attachment"

// Attachment is an order to attach a disk.
type Attachment struct {
	// Disk is a disk as KubeVirt describes it.
	Disk json.RawMessage `json:"disk"`
	// Container is the id of the container that has the volume of the disk's name.
	Container string `json:"container"`
	// Size is that of the disk in bytes that the node makes in a file system without one; 0 makes none.
	Size int64 `json:"size,omitempty"`
}

// Name names a disk.
type Name struct {
	Name string `json:"name"`
}

// Growth is an order to make a disk as large as its PVC.
type Growth struct {
	Name string `json:"name"`
	// Size is the capacity of the PVC in bytes.
	Size int64 `json:"size"`
}

// State is the state of a disk.
type State string

// The states of a disk.
const (
	// Attaching and Detaching are the states of a disk whose order the node goes on to carry out.
	Attaching State = "attaching"
	Attached  State = "attached"
	Detaching State = "detaching"
	// None is the state of a disk that the VM does not have, and whose volume QEMU does not have open.
	None State = "none"
)

// Disk is what the node knows of a disk.
type Disk struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Target is libvirt's name of the disk.
	Target string `json:"target,omitempty"`
	// Size is that of a disk which was ordered to grow, in bytes; 0 for a disk that a node does not grow.
	Size int64 `json:"size,omitempty"`
	// Container is the one whose volume the disk is.
	Container string `json:"container,omitempty"`
}
