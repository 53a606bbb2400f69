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

// viewAgain is the pause before a view whose process ended is shown again.
const viewAgain = time.Second

// Watch calls put, until ctx ends, when disks need [Disks.Restore]: with the id of a
// container when the view of one of its disks has ended, with "" when tgtd has
// started, which concerns all containers.
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
		case view := <-d.ended: // many that end at once do not wait for each other
			restoring.Go(func() { d.putBack(ctx, Container(view), put) })
		}
	}
}

// putBack restores the view of an owner, a moment after it ended.
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

// Sweep removes targets and views that belong to no container of records.
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
		return fmt.Errorf("remove targets and views of disks that are gone: %w", err)
	}
	return nil
}

// removeStray removes a target. A target that hangs must not block tgtd for others.
func (d *Disks) removeStray(ctx context.Context, t iscsi.Status) error {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	return d.ISCSI.Daemon.Remove(ctx, iscsi.Access{Name: t.Name, User: t.User})
}

// strays returns the views and targets without an owner. It lists them before it reads
// the records. A container is recorded before it has any, so those of a new container
// are not among them.
func (d *Disks) strays(ctx context.Context, records func() []record.Container) ([]string, []iscsi.Status, error) {
	views, viewsErr := d.views.List()
	targets, targetsErr := d.ISCSI.Daemon.List(ctx)
	if errors.Is(targetsErr, iscsi.ErrUnavailable) {
		targetsErr = nil // then there is no target
	}
	exports, err := d.Exports()
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
		hasView[viewOf(k)], hasTarget[overISCSI{Disks: d}.access(k).Name] = true, true
	}
	views = slices.DeleteFunc(views, func(id string) bool { return hasView[id] })
	targets = slices.DeleteFunc(targets, func(t iscsi.Status) bool { return !ours(t.Name) || hasTarget[t.Name] })
	return views, targets, errors.Join(viewsErr, targetsErr)
}
