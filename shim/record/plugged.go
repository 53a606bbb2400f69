package record

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PlugState is the phase of a disk or a network card that a running VM gets.
//
//	attaching ──▶ attached ──▶ detaching
//	    │             │            │
//	    └─────────────┴────────────┴──▶ no record
//
// The state is on disk before libvirtd is asked: a shim that finds one attaching or
// detaching asks libvirtd how far that came.
type PlugState string

// The states of such a device.
const (
	Attaching PlugState = "attaching"
	Attached  PlugState = "attached"
	Detaching PlugState = "detaching"
)

// PluggedDisk is a disk that a running VM gets.
type PluggedDisk struct {
	State PlugState   `json:"state"`
	Disk  vmspec.Disk `json:"disk"`
	// Content is what a registry disk is made of, and how long a copy is.
	Content Disk `json:"content,omitzero"`
	// Container is the container of the pod that has the disk's volume.
	Container string `json:"container"`
	// Set numbers the disk's descriptors in QEMU.
	Set int `json:"set"`
	// Order is the disk as KubeVirt describes it, for the target of a migration; empty for one that
	// an older version attached.
	Order json.RawMessage `json:"order,omitempty"`
	// Came says that the disk came with its guest from another node: this node's QEMU started
	// with it.
	Came bool `json:"came,omitempty"`
}

// AsStarted returns the record of a VM that starts with the disks which this one has got, and with
// media in its drives.
func (r Container) AsStarted() Container {
	r.Spec.Disks, r.Disks = slices.Clone(r.Spec.Disks), maps.Clone(r.Disks)
	for _, p := range r.Plugged {
		if p.Content.Image != nil || p.Content.Length > 0 {
			if r.Disks == nil {
				r.Disks = map[string]Disk{}
			}
			r.Disks[p.Disk.Name] = p.Content
		}
		i := slices.IndexFunc(r.Spec.Disks, func(d vmspec.Disk) bool { return d.Name == p.Disk.Name })
		if i < 0 {
			r.Spec.Disks = append(r.Spec.Disks, p.Disk)
			continue
		}
		drive := r.Spec.Disks[i]
		r.Spec.Disks[i] = p.Disk
		r.Spec.Disks[i].Serial, r.Spec.Disks[i].Tray = drive.Serial, drive.Tray
	}
	r.Plugged = nil
	return r
}

// FindPlugged returns the position of a disk in Plugged by its name, -1 if there is none.
func (r Container) FindPlugged(name string) int { return find(r.Plugged, name) }

// WithPlugged returns the record with a disk in the state that p says. The record that
// others read stays as it is.
func (r Container) WithPlugged(p PluggedDisk) Container {
	r.Plugged = with(r.Plugged, p)
	return r
}

// WithoutPlugged returns the record without a disk.
func (r Container) WithoutPlugged(name string) Container {
	r.Plugged = without(r.Plugged, name)
	return r
}
