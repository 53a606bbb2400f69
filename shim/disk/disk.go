// Package disk makes the disks of VM containers on the node, attaches them while
// their VM runs, and removes them.
//
// It owns the table of what a node does with each kind of disk ([vmspec.VolumeKinds]
// is the table of kinds), the files of disks in a container's folder, and the disks
// that nodes export to and import from each other. Package vmspec says which disks a
// VM has, package imageunpack gives out images, package domain writes the XML, and
// package vm decides when disks are made, attached and removed, and records it.
package disk

import (
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// Options are needed in full, but for the two that say otherwise.
type Options struct {
	Unpacker unpacker
	Expander expander
	// Tool converts images for volumes.
	Tool expand.Tool
	// Groups has programs that work on a VM's disk count as the VM's.
	Groups groups
	// Folder returns the folder of a container, which is removed with the container.
	Folder func(id string) string
	ISCSI  ISCSI
	// Network lets VMs have disks that QEMU opens over the network, from the node's own
	// network. CephConfig is the file that those on Ceph read; it need not exist.
	// CephNetworks are those that Reach lets them reach.
	Network      bool
	CephConfig   string
	CephNetworks []netip.Prefix
	// Shares is the folder of exports and imports.
	Shares string
	// FirstUID and LastUID bound the user ids of VMs.
	FirstUID, LastUID uint32
	// Reach lets VMs' processes reach the portals of their disks, and no other address.
	Reach limiter
	// Hooks change cloud-init's disks of VMs with hook sidecars.
	Hooks seedHooks
	// Views show overlays as raw files.
	Views rawview.Options

	// devices are the node's block devices; nil for the kernel's. persist writes the
	// disk of an image to a volume; nil for qemu-img's. processes looks at the node's; nil for /proc.
	devices   devices
	processes looker
	persist   persister
	// ask connects to the portals of network disks; nil for TCP.
	ask asker
	// views are nil for those of package rawview.
	views views
}

// Disks are the parts that deal with the disks of one node's VM containers. They may
// be called at the same time for different containers.
type Disks struct {
	Maker       *Maker
	Attachments *Attachments
	Keeper      *Keeper
	Exports     *Exports
	Imports     *Imports
}

// maxEnded bounds how many ends of views wait to be handled. More are handled when
// tgtd or the shim restarts.
const maxEnded = 1024

// New joins the parts.
func New(o Options) *Disks {
	if o.devices == nil {
		o.devices = kernelDevices{}
	}
	if o.processes == nil {
		o.processes = kernelLooker(witness.Node{FirstUID: o.FirstUID, UIDs: o.LastUID - o.FirstUID + 1})
	}
	if o.ask == nil {
		o.ask = dial
	}
	if o.persist == nil {
		o.persist = qemuPersister{o.Tool}
	}
	ended := make(chan string, maxEnded)
	if o.views == nil {
		o.Views.Ended = func(id string) {
			select {
			case ended <- id:
			default:
			}
		}
		o.views = rawview.New(o.Views)
	}
	files := folders{containers: o.Folder, exports: filepath.Join(o.Shares, "exports")}
	registry := newRegistry(o, files)
	imports := &Imports{dir: filepath.Join(o.Shares, "imports")}
	exports := &Exports{
		images: o.Unpacker, served: registry.served, targets: o.ISCSI.Daemon, files: exportFiles{files.exports},
		lastUID: o.LastUID, log: o.Views.Logger,
	}
	reserved := &reservations{}
	volumes := newPVC(o, reserved)
	kinds := newKinds(o, files, registry, imports, volumes)
	attachments := &Attachments{
		kinds: kinds, volumes: volumes, files: files, reach: o.Reach, reserved: reserved, processes: o.processes,
		devices: o.devices,
	}
	return &Disks{
		Maker: &Maker{kinds: kinds, images: o.Unpacker, volumes: volumes, reserved: reserved, processes: o.processes, devices: o.devices}, Attachments: attachments, Exports: exports, Imports: imports,
		Keeper: &Keeper{
			daemon: o.ISCSI.Daemon, views: o.views, ended: ended, exports: exports, served: registry.served, attachments: attachments, reach: o.Reach,
			firstUID: o.FirstUID, lastUID: o.LastUID, patience: o.ISCSI.Patience, log: o.ISCSI.Logger,
		},
	}
}

// Disk is one drive of a VM container.
type Disk struct {
	// Disk is what the pod asks for.
	vmspec.Disk
	// Content is what the record says of it.
	Content record.Disk
	// VM is the record of its container.
	VM record.Container
	// progress is called by create, if that takes time.
	progress func(expand.Progress)
	// look looks at the node's processes, once for all disks of a call.
	look looker
	// namespace is the pod's in Kubernetes, as long as there is no record.
	namespace string
	// standalone is a disk that belongs to no VM, see [Export].
	standalone bool
}

// of returns the disks of a container, in the order of its spec.
func of(r record.Container) []Disk {
	all := make([]Disk, 0, len(r.Spec.Disks))
	for _, d := range r.Spec.Disks {
		all = append(all, Disk{Disk: d, Content: r.Disks[d.Name], VM: r})
	}
	return all
}

// folders are those of the disks' files.
type folders struct {
	containers func(id string) string
	exports    string
}

// path returns a file in the folder of the disk's container or export.
func (f folders) path(k Disk, name string) string {
	if k.standalone {
		return filepath.Join(f.exports, k.VM.ID, name)
	}
	return filepath.Join(f.containers(k.VM.ID), name)
}

// comes reports whether the guest is still on another node, which has its volumes in use.
func (k Disk) comes() bool { return k.VM.Incoming != "" && !k.Copied }

// image returns the registry disk below; without one, a value that opens nothing.
func (k Disk) image() imageunpack.Disk {
	if k.Content.Image == nil {
		return imageunpack.Disk{}
	}
	return *k.Content.Image
}

// podNamespace returns the namespace of the VM's pod; empty for a disk of no VM.
func (k Disk) podNamespace() string { return k.VM.Sandbox.Value.GetMetadata().GetNamespace() }

// wrap says which disk an error is about.
func (k Disk) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s disk %q: %w", op, k.Name, err)
}

// group names an FD group of the disk: "top" is the layer that the guest writes,
// "base" the one below it.
func (k Disk) group(layer string) string { return k.Name + "-" + layer }
