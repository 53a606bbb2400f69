// Package hotplug gives running VMs disks and network cards, takes them away again, grows the disks, and
// sets the links of the cards: it carries out the orders of package order.
//
// A pod's volumes cannot change. So another pod, the attachment pod, has the kubelet mount
// the volume on the VM's node. It names the VM's pod in the annotation of package order,
// and has an ordinary container, which mounts the volume at a path that ends in the disk's
// name. The order names the container, and containerd says where its volume is. The
// attachment pod needs no handler: its sandbox has a process in any case, so that a
// container with another pause costs less than a third kind of containers would.
//
//	order ──▶ record ──▶ containerd: mounts ──▶ open ──▶ QEMU's descriptors ──▶ device
//
// QEMU gets the opened volume, as at a start: the VM's user has no right on the volume, and
// QEMU may open no path that it did not start with. Each step is recorded before it is
// taken. After an error, or a restart of the shim, libvirt says which disks the domain has:
// an attached disk stays, and all else is undone. A disk whose release was ordered is asked
// for until the guest releases it. The volume must stay mounted until the state is none.
//
// A volume can also be an image. Its registry disk, which the guest only reads, is held as those of the VM's
// start are, until the guest has lost it.
//
// A network card goes the same way. Its attachment pod has the card's network, for which CNI made an
// interface there. The guest's card is connected to that interface, as to those of the VM's own pod:
//
//	order ──▶ containerd: network namespace ──▶ plan ──▶ record ──▶ bridge, tap, DHCP ──▶ device ──▶ connect
//
// The package owns the orders and the records of the devices. It leaves volumes to package
// disk, networks to package netsetup, devices to package domain, the end of a VM with its devices to
// package lifecycle, and who may give orders to the API server, which lets users exec into the VM's pod.
package hotplug

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Domains attaches disks to running domains; [domain.Hotplug].
type Domains interface {
	Attach(ctx context.Context, uuid string, d domain.PluggedDisk, file *os.File) error
	Request(ctx context.Context, uuid, target string) error
	Targets(ctx context.Context, uuid string) (map[string]bool, error)
	Release(ctx context.Context, uuid string, set int) error
	Grow(ctx context.Context, uuid string, g domain.Growth, file *os.File) error
}

// Volumes opens volumes for VMs; [disk.Attachments].
type Volumes interface {
	Acquire(ctx context.Context, r record.Container, d vmspec.Disk) (record.Disk, error)
	Plug(ctx context.Context, r record.Container, p record.PluggedDisk) (domain.PluggedDisk, *os.File, error)
	Unplug(ctx context.Context, r record.Container, d vmspec.Disk) error
	Room(r record.Container, d vmspec.Disk, capacity int64) (*os.File, int64, error)
}

// Moves are the migrations of VMs; package move's Moves.
type Moves interface {
	// Moving reports whether the VM's guest is moving between nodes.
	Moving(v *table.VM) bool
}

// Conditions reports VMs to the API server; package report's Conditions.
type Conditions interface {
	// Update reports what a VM's record says, such as whether the VM can move.
	Update(v *table.VM)
}

// Agents ask guests; package guest's.
type Agents interface{ LookAgain(v *table.VM) }

// Options are the parts that Hotplugs works with. All are needed.
type Options struct {
	Table      *table.Table
	Tasks      *background.Tasks
	Domains    Domains
	Cards      Cards
	Networks   Networks
	Volumes    Volumes
	Moves      Moves
	Pods       attachment.Pods
	Conditions Conditions
	Agents     Agents
	Logger     *slog.Logger
}

// Hotplugs are the disks and the network cards that a node's running VMs get.
type Hotplugs struct {
	o     Options
	waits table.PerVM[*waits]
	// accesses are the volumes that orders open.
	accesses table.PerVM[*accesses]
}

// New returns Hotplugs.
func New(o Options) *Hotplugs {
	h := &Hotplugs{o: o}
	h.waits.New = func(*table.VM) *waits { return &waits{} }
	h.accesses.New = func(*table.VM) *accesses { return &accesses{} }
	return h
}

const (
	// patience bounds a call to libvirtd.
	patience = 30 * time.Second
	// maxPlugged bounds the disks that a VM gets.
	maxPlugged = 64
	// maxOrder bounds the description of one, in bytes: the nodes of a migration pass all of a VM's on.
	maxOrder = 2 << 10
)

// retryPause is the time between two requests to a guest, or to libvirtd while it is away.
var retryPause = background.Pause{First: time.Second, Limit: 30 * time.Second}
