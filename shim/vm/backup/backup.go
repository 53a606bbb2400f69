// Package backup copies the disks of running VMs to files of PVCs: it carries out the orders of
// package order.
//
// An attachment pod has the kubelet mount the PVC, as for a memory dump. The shim creates the files,
// and QEMU copies the disks to them while the guest goes on: neither QEMU's user nor libvirtd
// reaches the volume by itself.
//
//	order ──▶ containerd: mounts ──▶ record ──▶ files ──▶ freeze, QEMU's jobs, thaw ──▶ names
//
// A backup may name a checkpoint, since when QEMU tracks the guest's writes, and a later backup has
// what was written since then. QEMU alone says which checkpoints a disk has, see package domain. A
// backup that follows none has all content, and says so.
//
// A checkpoint of a backup that fails is removed, and the former one stays. Files get their names
// once all of them are complete. QEMU's jobs go on while the shim restarts. The end of the guest is
// the end of a backup, which fails then. The volume must stay mounted while the files are written. A
// backup to a volume that does not answer fails after a while, and keeps nothing else waiting.
//
// # Pull
//
// A pull backup keeps in its files what the guest overwrites, and QEMU serves the disks as they were
// when the backup began, by NBD, to a container of another attachment pod. QEMU listens on a socket
// in an emptyDir of that pod: nothing listens on a network, and the bytes do not pass through the
// shim, which may restart meanwhile. The order to finish the backup completes it. It fails while the
// guest can still write everything that it wants to: when the volume is nearly full, and when an
// error of a disk has stopped the guest for a while.
//
//	begun ──▶ readers, again for each container ──▶ no readers ──▶ jobs end ──▶ files removed
//
// The package owns the orders and the records of backups. It leaves files to package disk, and
// QEMU's commands to package domain.
package backup

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

// Domains copies disks of running domains; [domain.Backups].
type Domains interface {
	Sources(ctx context.Context, uuid string) (map[string]domain.BackupSource, error)
	Keep(ctx context.Context, uuid string, checkpoints []string) error
	Begin(ctx context.Context, uuid string, b domain.Backup, files []*os.File) error
	Jobs(ctx context.Context, uuid string, disks []domain.BackupDisk) (domain.BackupJobs, error)
	End(ctx context.Context, uuid string, disks []domain.BackupDisk) (ended bool, err error)
	Close(ctx context.Context, uuid string, disks []domain.BackupDisk) error
	Renew(ctx context.Context, uuid string, set int, file *os.File) error
	Serve(ctx context.Context, uuid string, disks []domain.ServedDisk, listener *os.File) error
}

// Volumes opens the volumes of disks, as for their growth; [disk.Attachments].
type Volumes interface {
	Room(r record.Container, d vmspec.Disk, capacity int64) (*os.File, int64, error)
}

// Files are the backups in volumes; package disk's Backups.
type Files interface {
	Create(b record.Backup) ([]*os.File, error)
	Complete(b record.Backup) error
	Remove(b record.Backup) error
	// Room returns the free bytes of the backup's volume, and its size.
	Room(b record.Backup) (free, size int64, err error)
	// Listen creates a socket in a folder, and Unlisten removes it.
	Listen(folder, name string) (*os.File, error)
	Unlisten(folder, name string) error
}

// Freezes freeze guests' file systems; package guest's Freezes.
type Freezes interface {
	// Freeze stops the guest's writes for a time at most.
	Freeze(ctx context.Context, v *table.VM, longest time.Duration) error
	Frozen(ctx context.Context, v *table.VM) (bool, error)
	Thaw(ctx context.Context, v *table.VM) error
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

// Options are the parts that Backups works with. All are needed.
type Options struct {
	Table      *table.Table
	Tasks      *background.Tasks
	Domains    Domains
	Files      Files
	Volumes    Volumes
	Freezes    Freezes
	Moves      Moves
	Pods       attachment.Pods
	Conditions Conditions
	Logger     *slog.Logger
}

// Backups are the backups of a node's running VMs.
type Backups struct {
	o Options
	// volumes has the accesses to the volume of a VM's backup.
	volumes table.PerVM[*background.Volume]
}

// New returns Backups.
func New(o Options) *Backups {
	b := &Backups{o: o}
	b.volumes.New = func(*table.VM) *background.Volume { return background.NewVolume() }
	return b
}

// within accesses the volume of a VM's backup for a limited time: its server may be away.
func (b *Backups) within(ctx context.Context, limit time.Duration, v *table.VM, do func() error) error {
	ctx, cancel := background.AtMost(ctx, limit)
	defer cancel()
	return b.volumes.Of(v).Do(ctx, do)
}

const (
	// patience bounds a call to libvirtd, and the wait for a VM's turn.
	patience = 30 * time.Second
	// freezeTime bounds a freeze, which lasts as long as QEMU takes to begin: a guest is not frozen for
	// longer because libvirtd does not answer, or the shim is killed. quiesceTime bounds the agent's calls.
	freezeTime  = 10 * time.Second
	quiesceTime = time.Minute
	// createTime bounds the creation of a backup's files, completeTime the time until they have their names,
	// and accessTime other accesses to its volume.
	createTime   = time.Minute
	completeTime = 10 * time.Minute
	accessTime   = 10 * time.Second
	// jobPoll is the time between two looks at QEMU's jobs.
	jobPoll = 500 * time.Millisecond
	// maxErrors bounds QEMU's errors in a row.
	maxErrors = 20
	// maxMessage bounds a text in a record, in bytes.
	maxMessage = 1 << 10
)
