package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// diskKeeper restores what the disks of running VMs lose when a daemon restarts.
type diskKeeper struct {
	table *table.Table
	disks DiskKeeper
	// attached restores the disks of one VM.
	attached DiskAttacher
	tasks    *background.Tasks
	log      *slog.Logger
}

// watch restores disks until ctx ends.
func (k *diskKeeper) watch(ctx context.Context) {
	k.disks.Watch(ctx, func(ctx context.Context, id string) {
		if id == "" {
			k.sweep(ctx)
		}
		for _, v := range k.table.All("") {
			if r := v.Record(); r.State == record.Running && (id == "" || id == r.ID) {
				k.tasks.Run(func(ctx context.Context) { k.restore(ctx, v) })
			}
		}
	})
}

// watchPortals makes requests fail on disks whose iSCSI target does not answer,
// until ctx ends.
func (k *diskKeeper) watchPortals(ctx context.Context) {
	k.disks.WatchPortals(ctx, func() []record.Container { return k.table.Records(record.Starting, record.Running) })
}

// sweep removes what a shim that was killed left of disks without a record. While
// a record cannot be used it removes nothing: it does not know that VM's disks.
func (k *diskKeeper) sweep(ctx context.Context) {
	if k.table.Refusals.Any() {
		return
	}
	err := k.disks.Sweep(ctx, func() []record.Container { return k.table.Records() })
	if err != nil && ctx.Err() == nil {
		k.log.Error("removing what disks that are gone had left failed", "error", err)
	}
}

const (
	// restoreTime bounds one attempt to restore a VM's disks.
	restoreTime = 30 * time.Second
	// restorePause is the time between two attempts.
	restorePause = time.Second
)

// restore restores a VM's disks, and retries while that fails: the guest waits for
// them. What libvirtd is missing it gets when it is back.
func (k *diskKeeper) restore(ctx context.Context, v *table.VM) {
	for logged := false; ; logged = true {
		err := k.restoreOnce(ctx, v)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged {
			table.Logger(k.log, v.Record()).Error("restoring the disks of a VM failed, retrying", "error", err)
		}
		if errors.Is(err, domain.ErrUnavailable) {
			return
		}
		select {
		case <-v.Exited():
			return
		default:
			background.Sleep(ctx, restorePause)
		}
	}
}

func (k *diskKeeper) restoreOnce(ctx context.Context, v *table.VM) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running {
		return nil
	}
	return k.attached.Restore(ctx, r)
}
