// Package order has the machine controls by which a running VM gets and loses disks, and dumps
// its memory, and their arguments and answers, all JSON.
package order

import (
	"encoding/json"
	"time"
)

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
	// Preallocated says that the volume's storage is allocated in advance.
	Preallocated bool `json:"preallocated,omitempty"`
	// Path is that of a registry disk in the image that the container mounts; empty for the only one there.
	Path string `json:"path,omitempty"`
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

// The machine controls of memory dumps. Each takes one argument, the JSON of the type beside it,
// and answers with the [Dump] as it is then. Each may be repeated.
const (
	MemoryDump       = "memory-dump"        // DumpFile
	MemoryDumpStatus = "memory-dump-status" // Name, of the volume
)

// DumpFile is an order to write the guest's memory to a new file, in place of the volume's
// former dumps.
type DumpFile struct {
	// Volume is the name of the volume, which Container mounts.
	Volume    string `json:"volume"`
	Container string `json:"container"`
	// File is the name of the file in the volume, which ends in [DumpSuffix].
	File string `json:"file"`
}

// DumpSuffix is the end of the names of dumps, as with KubeVirt.
const DumpSuffix = ".memory.dump"

// DumpState is the state of a memory dump.
type DumpState string

// The states of a memory dump. The node has the volume open only while it writes.
const (
	DumpNone      DumpState = "none"
	DumpWriting   DumpState = "writing"
	DumpCompleted DumpState = "completed"
	DumpFailed    DumpState = "failed"
)

// Dump is what the node knows of the last dump of a guest's memory.
type Dump struct {
	Volume string    `json:"volume"`
	State  DumpState `json:"state"`
	File   string    `json:"file,omitempty"`
	// Start and End are when the dump began and ended.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Message is why the dump failed.
	Message string `json:"message,omitempty"`
}
