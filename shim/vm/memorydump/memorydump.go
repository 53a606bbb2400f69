// Package memorydump dumps the memory of guests to files of PVCs: it carries out the orders of
// package order.
//
// An attachment pod has the kubelet mount the PVC, as for a disk of a running VM. The shim
// creates the file, and copies to it what QEMU writes to a pipe: neither QEMU nor libvirtd
// reaches the volume. The guest's vCPUs stop meanwhile.
//
//	order ──▶ containerd: mounts ──▶ record ──▶ file ◀── pipe ◀── QEMU
//
// The end of the guest, or of the shim, is the end of a dump, which fails then. The guest goes on
// in any case. The volume must stay mounted while the dump is written. A volume that does not answer
// keeps nothing but its dump waiting: no access to a volume happens during a VM's turn.
//
// The package owns the orders and the records of dumps. It leaves files to package disk, and
// QEMU's commands to package domain.
package memorydump

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Domains dumps the memory of running domains; [domain.Dumps].
type Domains interface {
	Write(ctx context.Context, uuid string, to domain.Dump, file *os.File) error
	Clear(pipe string) error
}

// Files are the dumps in volumes; package disk's Dumps.
type Files interface {
	Create(folder, name string) (*os.File, error)
	Remove(folder, name string) error
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

// Options are the parts that Dumps works with. All are needed.
type Options struct {
	Table      *table.Table
	Tasks      *background.Tasks
	Domains    Domains
	Files      Files
	Moves      Moves
	Pods       attachment.Pods
	Conditions Conditions
	Layout     layout.Layout
	Logger     *slog.Logger
}

// Dumps are the dumps of the memory of a node's guests.
type Dumps struct {
	o       Options
	volumes table.PerVM[*background.Volume]
}

// New returns Dumps.
func New(o Options) *Dumps {
	d := &Dumps{o: o}
	d.volumes.New = func(*table.VM) *background.Volume { return background.NewVolume() }
	return d
}

const (
	// stall bounds a write to a volume, for whose end the guest waits, and the creation of a file.
	stall = time.Minute
	// removeTime bounds the removal of an incomplete dump.
	removeTime = 10 * time.Second
	// endTime bounds the wait for the VM's turn when a dump has ended.
	endTime = 30 * time.Second
	// slack is what a dump has at most beside the guest's memory, such as that of devices.
	slack = 1 << 30
	// maxMessage bounds the text of an error in a record, in bytes.
	maxMessage = 1 << 10
)
