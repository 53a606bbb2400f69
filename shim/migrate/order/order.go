// Package order has what the controller and the two nodes of a migration say to each
// other: the machine controls, their arguments and answers, all JSON.
//
// The controller gives these orders by exec in the VM's container, in this order:
//
//  1. source: [Identify], which returns the source's fingerprint
//  2. target: [Receive] with it, the source's guest and the volumes of its disks, which returns
//     the target's address and fingerprint
//  3. source: [Send] with these; the migration goes on in the background
//  4. both:   [Status], as often as it likes
//
// Each may be repeated: a node that carried an order out gives the same answer again.
package order

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// The machine controls. Each takes one argument, the JSON of the type beside it.
const (
	Identify = "migrate-identify" // Departure; answers Identity
	Receive  = "migrate-receive"  // Reception; answers Identity
	Send     = "migrate-send"     // Sending; answers Report
	Status   = "migrate-status"   // Migration; answers Report
	Cancel   = "migrate-cancel"   // Migration; answers Report
	Decide   = "migrate-decide"   // Decision; answers Report
)

// OtherAddresses are words of the error of a target whose pod has other addresses than the guest. The controller knows it by
// them: another attempt would fail, too.
const OtherAddresses = "its network must give the same MAC and IP addresses to both pods"

// Annotation of the target's pod has the migration's UID. The pod's VM does not boot:
// it waits for the guest of the source.
const Annotation = "nodevirt.io/migration"

// Migration names a migration by the UID of its object.
type Migration struct {
	Migration string `json:"migration"`
}

// Departure is an order to a source to identify itself.
type Departure struct {
	Migration
	// Copied are the names of disks on PVCs that are copied to other PVCs, which the target's pod has. Nodes of
	// earlier versions refuse them.
	Copied []string `json:"copied,omitempty"`
}

// Identity is how one end is reached and recognised.
type Identity struct {
	// Fingerprint is the hexadecimal SHA-256 of the end's certificate for this migration.
	Fingerprint string `json:"fingerprint"`
	// Address is the target's host and port; empty for a source.
	Address string `json:"address,omitempty"`
	// Files says that the target has found all files on PVCs that are disks of the guest; false for a source, and for
	// a target that looks for none but those that the guest has got since it runs.
	Files bool `json:"files,omitempty"`
	// Guest describes the source's VM to the target; nil for a target. The controller
	// passes it on unchanged, in [Reception].
	Guest *Guest `json:"guest,omitempty"`
}

// Guest is what the target must know of the source's VM before the source connects. A VM
// keeps its identity for libvirt on its way: that is not of the pod.
type Guest struct {
	// UUID is the domain's.
	UUID string `json:"uuid"`
	// Disks identify the content below the disks that are copied, by the disks' names:
	// the target must have the same.
	Disks map[string]string `json:"disks,omitempty"`
	// Lengths are the sizes in bytes of the disks that are copied to other PVCs, by the disks' names.
	Lengths map[string]int64 `json:"lengths,omitempty"`
	// Cards are the addresses of the cards with the binding bridge, by the cards' names: the
	// target must have the same.
	Cards map[string]string `json:"cards,omitempty"`
	// MTUs are those of the cards, in bytes, by the cards' names: the guest keeps them.
	MTUs map[string]int `json:"mtus,omitempty"`
	// Firmware is the guest's UEFI firmware; nil for a BIOS.
	Firmware *Firmware `json:"firmware,omitempty"`
	// CPU identifies the node's CPU for a guest that has all of it; empty for a named model.
	CPU string `json:"cpu,omitempty"`
	// Plugged are the disks and media that the guest has got since it runs: a target that ignores
	// them refuses the guest.
	Plugged []Plugged `json:"plugged,omitempty"`
}

// MaxPlugged bounds the disks that a guest has got since it runs.
const MaxPlugged = 64

// Plugged is a disk that a guest has got since it runs.
type Plugged struct {
	// Disk is the disk as KubeVirt describes it.
	Disk json.RawMessage `json:"disk"`
	// Name is the disk's, Target libvirt's name of it.
	Name   string `json:"name"`
	Target string `json:"target"`
	// Path is that of a registry disk in its image, and Content identifies the disk: the target must have the
	// same. Both are empty for other disks.
	Path    string `json:"path,omitempty"`
	Content string `json:"content,omitempty"`
	// Preallocated says that the storage of the disk's volume is allocated in advance.
	Preallocated bool `json:"preallocated,omitempty"`
}

// Firmware is what both nodes' UEFI firmware must have in common. QEMU carries the program
// and the variables as memory, and the target writes the variables to a file of that size.
type Firmware struct {
	// Code and Variables are sizes in bytes.
	Code      int64 `json:"code"`
	Variables int64 `json:"variables"`
	// SMM says that the firmware requires system management mode.
	SMM bool `json:"smm,omitempty"`
}

// String describes the firmware for an error.
func (f *Firmware) String() string {
	if f == nil {
		return "missing"
	}
	return fmt.Sprintf("%d and %d bytes, with system management mode: %t", f.Code, f.Variables, f.SMM)
}

// Reception is an order to a target.
type Reception struct {
	Migration
	// Source is the source's fingerprint.
	Source string `json:"source"`
	// Guest is the source's VM, from its [Identity].
	Guest *Guest `json:"guest"`
	// Volumes are the containers of the target's attachment pods, by the names of the disks in
	// Guest.Plugged.
	Volumes map[string]string `json:"volumes,omitempty"`
	// Copied are the names of those of these disks that become copies, on other PVCs than the guest's. Nodes of
	// earlier versions refuse them.
	Copied []string `json:"copied,omitempty"`
	// Node is an address of the target's node. The target listens there for a guest that has its
	// pod's address, which leaves the pod none.
	Node netip.Addr `json:"node,omitzero"`
}

// Sending is an order to a source.
type Sending struct {
	Migration
	Target Identity `json:"target"`
	// Node is the name of the target's node, which the source's record keeps.
	Node string `json:"node,omitempty"`
	// Bandwidth bounds the copy, in bytes a second; 0 is no bound.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// AutoConverge allows QEMU to slow a guest down that writes faster than is copied.
	AutoConverge bool `json:"autoConverge,omitempty"`
	// PerGiB bounds the copy by the time that a GiB of memory or of a disk may take; 0 is no bound. Timeout bounds it for
	// nodes that do not know PerGiB, and Stall the time without progress.
	PerGiB  time.Duration `json:"perGiB,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	Stall   time.Duration `json:"stall,omitempty"`
	// Pause has the source pause a guest whose copy takes more time, and gives the copy as much time
	// again.
	Pause bool `json:"pause,omitempty"`
}

// Decision is an administrator's or the controller's answer in place of a target that
// is gone for good.
type Decision struct {
	Migration
	// Run is true if the source is to run its guest, and false if the guest is the target's.
	Run bool `json:"run"`
}

// Report is what an end knows.
type Report struct {
	Migration
	// State is a state of package handover; empty if the node knows no such migration.
	State string `json:"state"`
	// Reason says why the source kept or the target refused the guest.
	Reason string `json:"reason,omitempty"`
	// Ended means that the node has carried out its decision.
	Ended bool `json:"ended,omitempty"`
	// Paused means that the source's guest is paused while its memory is copied.
	Paused bool `json:"paused,omitempty"`
	// Unsettled means that the source has no answer: its guest is paused until it has one.
	Unsettled bool `json:"unsettled,omitempty"`
	// Total, Processed and Remaining count bytes of memory and disks.
	Total     int64 `json:"total,omitempty"`
	Processed int64 `json:"processed,omitempty"`
	Remaining int64 `json:"remaining,omitempty"`
	// Begun and Done are times of the node's clock; zero before.
	Begun time.Time `json:"begun,omitzero"`
	Done  time.Time `json:"done,omitzero"`
}
