package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	hold := time.NewTicker(holdEvery)
	defer hold.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hold.C:
			d.holdExports(ctx)
		case view := <-d.ended:
			select {
			case <-ctx.Done():
			case <-time.After(viewAgain):
			}
			if id := Container(view); IsExport(id) {
				d.restoreExports(ctx, id)
			} else {
				put(ctx, id)
			}
		}
	}
}

// Sweep removes targets and views that belong to none of the containers.
func (d *Disks) Sweep(ctx context.Context, all []record.Container) error {
	var targets, views []string
	exports, err := d.Exports()
	if err != nil {
		return err // theirs are not known
	}
	for _, e := range exports {
		targets = append(targets, overISCSI{Disks: d}.access(e.disk()).Name)
		views = append(views, viewOf(e.disk()))
	}
	for _, r := range all {
		for _, k := range of(r) {
			targets = append(targets, overISCSI{Disks: d}.access(k).Name)
			views = append(views, viewOf(k))
		}
	}
	var errs []error
	errs = append(errs, d.releaseStrayExports(ctx))
	shown, err := d.views.List()
	errs = append(errs, err)
	for _, id := range shown {
		if !slices.Contains(views, id) {
			errs = append(errs, d.views.Hide(ctx, id))
		}
	}
	served, err := d.ISCSI.Daemon.List(ctx)
	if errors.Is(err, iscsi.ErrUnavailable) {
		return errors.Join(errs...) // and no target is there
	}
	errs = append(errs, err)
	for _, t := range served {
		if ours(t.Name) && !slices.Contains(targets, t.Name) {
			errs = append(errs, d.ISCSI.Daemon.Remove(ctx, iscsi.Access{Name: t.Name, User: t.User}))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what disks that are gone had left: %w", err)
	}
	return nil
}
