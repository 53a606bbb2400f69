package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/record"
)

// restorer is a kind of which attach leaves something with processes that can end
// before the machine does.
type restorer interface {
	restore(ctx context.Context, k Disk) error
}

// Restore puts back what Attach made for a running machine and what is not there
// any more.
func (d *Disks) Restore(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range of(r) {
		if kind, ok := d.kind(k).(restorer); ok {
			errs = append(errs, k.wrap("put back", kind.restore(ctx, k)))
		}
	}
	return errors.Join(errs...)
}

// viewAgain is how long a process that showed a disk and ended is left alone.
const viewAgain = time.Second

// Watch has disks put back, until ctx ends: those of all machines when tgtd is
// there, again or for the first time, those of one when what showed one of its
// disks has ended. Put is told the container, or "" for all.
func (d *Disks) Watch(ctx context.Context, put func(ctx context.Context, id string)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.ISCSI.Daemon.Watch(ctx, func(ctx context.Context) {
			put(ctx, "")
			d.restoreExports(ctx, "")
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
			d.holdExports(ctx)
		case view := <-d.ended: // of many that end at once none waits for the others
			restoring.Go(func() { d.putBack(ctx, Container(view), put) })
		}
	}
}

// putBack has the owner of a view that ended get it back, a moment later.
func (d *Disks) putBack(ctx context.Context, id string, put func(ctx context.Context, id string)) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(viewAgain):
	}
	if IsExport(id) {
		d.restoreExports(ctx, id)
		return
	}
	put(ctx, id)
}

// Sweep removes targets and views that belong to none of the containers that records
// returns.
func (d *Disks) Sweep(ctx context.Context, records func() []record.Container) error {
	views, targets, err := d.strays(ctx, records)
	errs := []error{err, d.releaseStrayExports(ctx)}
	for _, id := range views {
		errs = append(errs, d.views.Hide(ctx, id))
	}
	for _, t := range targets {
		errs = append(errs, d.removeStray(ctx, t))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what disks that are gone had left: %w", err)
	}
	return nil
}

// removeStray removes a target. One that does not go must not keep tgtd from others for ever.
func (d *Disks) removeStray(ctx context.Context, t iscsi.Status) error {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	return d.ISCSI.Daemon.Remove(ctx, iscsi.Access{Name: t.Name, User: t.User})
}

// strays are the views and targets that are nobody's. They are listed before the records
// are read, in which a container stands before it has any: of one that comes meanwhile
// none is among them.
func (d *Disks) strays(ctx context.Context, records func() []record.Container) ([]string, []iscsi.Status, error) {
	views, viewsErr := d.views.List()
	targets, targetsErr := d.ISCSI.Daemon.List(ctx)
	if errors.Is(targetsErr, iscsi.ErrUnavailable) {
		targetsErr = nil // and no target is there
	}
	exports, err := d.Exports()
	if err != nil {
		return nil, nil, err // theirs are not known
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
		hasView[viewOf(k)], hasTarget[overISCSI{Disks: d}.access(k).Name] = true, true
	}
	views = slices.DeleteFunc(views, func(id string) bool { return hasView[id] })
	targets = slices.DeleteFunc(targets, func(t iscsi.Status) bool { return !ours(t.Name) || hasTarget[t.Name] })
	return views, targets, errors.Join(viewsErr, targetsErr)
}
