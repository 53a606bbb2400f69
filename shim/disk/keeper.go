package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// viewAgain is the pause before a view whose process ended is shown again.
const viewAgain = time.Second

// Keeper keeps what tgtd and the processes of views must have while VMs run, and
// removes what no VM needs any more.
type Keeper struct {
	daemon      daemon
	views       views
	ended       chan string // views whose processes ended by themselves
	exports     exportKeeper
	served      namer
	attachments describer
	reach       limiter

	firstUID, lastUID uint32 // of VMs
	// patience is as in [ISCSI].
	patience time.Duration
	log      *slog.Logger
}

// exportKeeper keeps the exports; [Exports].
type exportKeeper interface {
	List() ([]Export, error)
	restore(ctx context.Context, id string)
	hold(ctx context.Context)
	releaseStrays(ctx context.Context) error
}

// namer names the targets of disks; overISCSI.
type namer interface{ access(Disk) iscsi.Access }

// describer describes the disks of a container; [Attachments].
type describer interface {
	Describe(r record.Container) []domain.Disk
}

// Watch calls restore, until ctx ends, when disks need [Attachments.Restore]: with the id of a
// container when the view of one of its disks has ended, with "" when tgtd has
// started, which concerns all containers.
func (w *Keeper) Watch(ctx context.Context, restore func(ctx context.Context, id string)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.daemon.Watch(ctx, func(ctx context.Context) {
			restore(ctx, "")
			w.exports.restore(ctx, "")
		})
	}()
	defer func() { <-done }()
	var restoring sync.WaitGroup
	defer restoring.Wait()
	hold := time.NewTicker(holdEvery)
	defer hold.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hold.C:
			w.exports.hold(ctx)
		case view := <-w.ended: // many that end at once do not wait for each other
			restoring.Go(func() { w.restoreView(ctx, Container(view), restore) })
		}
	}
}

// restoreView restores the view of an owner, a moment after it ended.
func (w *Keeper) restoreView(ctx context.Context, id string, restore func(ctx context.Context, id string)) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(viewAgain):
	}
	if IsExport(id) {
		w.exports.restore(ctx, id)
		return
	}
	restore(ctx, id)
}

// Sweep removes targets and views that belong to no container of records.
func (w *Keeper) Sweep(ctx context.Context, records func() []record.Container) error {
	views, targets, err := w.strays(ctx, records)
	errs := []error{err, w.exports.releaseStrays(ctx)}
	for _, id := range views {
		errs = append(errs, w.views.Hide(ctx, id))
	}
	for _, t := range targets {
		errs = append(errs, w.removeStray(ctx, t))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove targets and views of disks that are gone: %w", err)
	}
	return nil
}

// removeStray removes a target. A target that hangs must not block tgtd for others.
func (w *Keeper) removeStray(ctx context.Context, t iscsi.Status) error {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	return w.daemon.Remove(ctx, iscsi.Access{Name: t.Name, User: t.User})
}

// strays returns the views and targets without an owner. It lists them before it reads
// the records. A container is recorded before it has any, so those of a new container
// are not among them.
func (w *Keeper) strays(ctx context.Context, records func() []record.Container) ([]string, []iscsi.Status, error) {
	views, viewsErr := w.views.List()
	targets, targetsErr := w.daemon.List(ctx)
	if errors.Is(targetsErr, iscsi.ErrUnavailable) {
		targetsErr = nil // then there is no target
	}
	exports, err := w.exports.List()
	if err != nil {
		return nil, nil, err // the views and targets of exports are unknown
	}
	var owned []Disk
	for _, e := range exports {
		owned = append(owned, e.disk())
	}
	for _, r := range records() {
		owned = append(owned, of(r)...)
	}
	hasView, hasTarget := map[string]bool{}, map[string]bool{}
	for _, k := range owned {
		hasView[viewOf(k)], hasTarget[w.served.access(k).Name] = true, true
	}
	views = slices.DeleteFunc(views, func(id string) bool { return hasView[id] })
	targets = slices.DeleteFunc(targets, func(t iscsi.Status) bool { return !ours(t.Name) || hasTarget[t.Name] })
	return views, targets, errors.Join(viewsErr, targetsErr)
}
