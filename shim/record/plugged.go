package record

import (
	"slices"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PlugState is the phase of a disk that a running VM gets.
//
//	attaching ──▶ attached ──▶ detaching
//	    │             │            │
//	    └─────────────┴────────────┴──▶ no record
//
// The state is on disk before libvirtd is asked: a shim that finds a disk attaching or
// detaching asks libvirtd how far that came.
type PlugState string

// The states of such a disk.
const (
	Attaching PlugState = "attaching"
	Attached  PlugState = "attached"
	Detaching PlugState = "detaching"
)

// PluggedDisk is a disk that a running VM gets.
type PluggedDisk struct {
	State PlugState   `json:"state"`
	Disk  vmspec.Disk `json:"disk"`
	// Container is the container of the pod that has the disk's volume.
	Container string `json:"container"`
	// Set numbers the disk's descriptors in QEMU.
	Set int `json:"set"`
}

// FindPlugged returns the position of a disk in Plugged by its name, -1 if there is none.
func (r Container) FindPlugged(name string) int {
	return slices.IndexFunc(r.Plugged, func(p PluggedDisk) bool { return p.Disk.Name == name })
}

// WithPlugged returns the record with a disk in the state that p says. The record that
// others read stays as it is.
func (r Container) WithPlugged(p PluggedDisk) Container {
	r.Plugged = slices.Clone(r.Plugged)
	if i := r.FindPlugged(p.Disk.Name); i >= 0 {
		r.Plugged[i] = p
		return r
	}
	r.Plugged = append(r.Plugged, p)
	return r
}

// WithoutPlugged returns the record without a disk.
func (r Container) WithoutPlugged(name string) Container {
	r.Plugged = slices.DeleteFunc(slices.Clone(r.Plugged), func(p PluggedDisk) bool { return p.Disk.Name == name })
	return r
}
