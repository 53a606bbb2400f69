package lifecycle

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// diskErrors resumes guests that QEMU has stopped at a disk error, mostly because
// the node's disk is full.
type diskErrors struct {
	observer   Observer
	domains    starter
	conditions Conditions
	moves      Moves
	tasks      *background.Tasks
	log        *slog.Logger
	busy       table.PerVM[*atomic.Bool]
}

func newDiskErrors(o Options) *diskErrors {
	d := &diskErrors{observer: o.Observer, domains: o.Domains, conditions: o.Conditions, moves: o.Moves, tasks: o.Tasks, log: o.Logger}
	d.busy.New = func(*table.VM) *atomic.Bool { return &atomic.Bool{} }
	return d
}

// resumePause is the time between two tries. QEMU has kept the request, and stops
// the guest again if the request fails again.
var resumePause = background.Fixed(2 * time.Second)

// resume lets a guest go on as soon as its disk works again. The caller has the
// VM's turn.
func (d *diskErrors) resume(v *table.VM) {
	if !d.busy.Of(v).CompareAndSwap(false, true) {
		return // it is being tried
	}
	d.tasks.Run(func(ctx context.Context) {
		d.report(ctx, v)
		if d.try(ctx, v) {
			return
		}
		d.tasks.Retry(resumePause, v.Exited(), func(ctx context.Context) bool { return d.try(ctx, v) })
	})
}

// findTime bounds the search for the disk that fails.
const findTime = 10 * time.Second

// report reports which disk has stopped a guest, in the log and in the pod's conditions.
func (d *diskErrors) report(ctx context.Context, v *table.VM) {
	r := v.Record()
	disks := "a disk, which libvirt does not name"
	ctx, cancel := background.AtMost(ctx, findTime)
	defer cancel()
	if found, err := d.observer.DiskErrors(ctx, r.Domain.UUID); err != nil {
		table.Logger(d.log, r).Debug("finding the disk that fails failed", "error", err)
	} else if named := failingDisks(r, found); named != "" {
		disks = named
	}
	table.Logger(d.log, r).Error("the guest is stopped, since its disk fails: check whether the node's disk is full, or an iSCSI target "+
		"or Ceph is away; the guest goes on as soon as its disk works", "disk", disks)
	d.conditions.SetDiskError(v, "I/O error on "+disks)
}

// failingDisks names the disks of a VM that fail, by their names in the spec. found has their targets, and whether they
// have no space left.
func failingDisks(r record.Container, found map[string]bool) string {
	var all []string
	for _, disk := range r.Spec.Disks {
		full, fails := found[disk.Target]
		switch {
		case full:
			all = append(all, "disk "+disk.Name+": no space left on its storage")
		case fails:
			all = append(all, "disk "+disk.Name)
		}
	}
	return strings.Join(all, ", ")
}

// try lets a stopped guest run, and reports whether that was not needed any more.
func (d *diskErrors) try(ctx context.Context, v *table.VM) (runs bool) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running {
		return true
	}
	state, err := stateOf(ctx, d.observer, r)
	switch {
	case err != nil:
		return false // libvirtd is away
	case !stoppedByDisk(state):
		// Within the turn: a caller that sees the guest stopped again comes later.
		d.busy.Of(v).Store(false)
		table.Logger(d.log, r).Info("the guest that was stopped at a disk error goes on")
		return true
	case !d.moves.MayResume(v):
		return false // another node may have the guest
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := d.domains.Resume(ctx, r.Domain.UUID); err != nil {
		table.Logger(d.log, r).Debug("resuming a guest failed", "error", err)
	}
	return false
}

func stoppedByDisk(s domain.State) bool {
	return s.Status == domain.StatusPaused && s.Reason == domain.ReasonIOError
}
