package vmtest

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Watch implements disk's: it passes on what Lost reports.
func (d *Disks) Watch(ctx context.Context, restore func(ctx context.Context, id string)) {
	for {
		select {
		case id := <-d.restore:
			restore(ctx, id)
		case <-ctx.Done():
			return
		}
	}
}

// Lost reports that a VM's disks, or with "" all, lost what they need.
func (d *Disks) Lost(id string) { d.restore <- id }

// WatchPortals implements disk's. It notes the VMs whose portals it would watch.
func (d *Disks) WatchPortals(ctx context.Context, running func() []record.Container) {
	for range running() {
		_ = d.script.note("Disks.portal")
	}
	<-ctx.Done()
}

// LimitReach implements disk's. It notes the VMs that may reach their portals.
func (d *Disks) LimitReach(ctx context.Context, running []record.Container, _ bool) error {
	for range running {
		_ = d.script.note("Disks.reach")
	}
	return d.script.enter(ctx, "Disks.LimitReach")
}

// WatchReach implements disk's.
func (d *Disks) WatchReach(ctx context.Context) { <-ctx.Done() }

// Restore implements disk's.
func (d *Disks) Restore(ctx context.Context, _ record.Container) error {
	return d.script.enter(ctx, "Disks.Restore")
}

// Sweep implements disk's: it removes the disks of VMs without a record.
func (d *Disks) Sweep(ctx context.Context, records func() []record.Container) error {
	if err := d.script.enter(ctx, "Disks.Sweep"); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range records() {
		known[r.ID] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.attached {
		if !known[id] {
			delete(d.attached, id)
		}
	}
	return nil
}

// Writable implements disk's.
func (d *Disks) Writable(record.Container) []string { return nil }
