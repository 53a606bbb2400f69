package hotplug

import (
	"context"
	"errors"
	"sync"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Recover finds out how far the orders came that an earlier shim process had. It does not
// wait for libvirtd.
func (h *Hotplugs) Recover() {
	for _, v := range h.o.Table.All("") {
		if r := v.Record(); r.State == record.Running && len(r.Plugged)+len(r.Cards) > 0 {
			h.settleLater(v)
		}
	}
}

// waits is what is known of a VM's task.
type waits struct {
	mu      sync.Mutex
	running bool
	// more says that the task must look again: there was another order.
	more bool
}

// settleLater starts the VM's task, which settles the disks and the cards until none is on its way.
func (h *Hotplugs) settleLater(v *table.VM) {
	w := h.waits.Of(v)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more = true
	if w.running {
		return
	}
	w.running = true
	h.o.Tasks.Retry(retryPause, v.Exited(), func(ctx context.Context) bool {
		w.mu.Lock()
		w.more = false
		w.mu.Unlock()
		done := h.settle(ctx, v)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = !done || w.more
		return !w.running
	})
}

// settle reports whether no disk and no network card of a VM is on its way any more.
func (h *Hotplugs) settle(ctx context.Context, v *table.VM) (done bool) {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return errors.Is(err, vmerrors.ErrNotFound)
	}
	defer unlock()
	done = true
	for _, p := range v.Record().Plugged {
		if h.accesses.Of(v).has(p.Disk.Name) { // its order settles it
			done = false
			continue
		}
		settled, err := h.settleOne(ctx, v, p)
		if err != nil {
			table.Logger(h.o.Logger, v.Record()).Warn("finding out about a disk of a VM failed, retrying", "disk", p.Disk.Name, "error", err)
		}
		done = done && settled && err == nil
	}
	for _, c := range v.Record().Cards {
		settled, err := h.settleCard(ctx, v, c)
		if err != nil {
			table.Logger(h.o.Logger, v.Record()).Warn("finding out about a network card of a VM failed, retrying", "card", c.Card.Name, "error", err)
		}
		done = done && settled && err == nil
	}
	return done
}

// settleOne makes the record of a disk what libvirt says, and reports whether the disk is
// not on its way any more. The caller has the VM's turn.
func (h *Hotplugs) settleOne(ctx context.Context, v *table.VM, p record.PluggedDisk) (settled bool, err error) {
	r := v.Record()
	if r.State != record.Running || r.Incoming != "" {
		return true, nil // the end of the VM is the end of its disks, and a guest that comes brings its own
	}
	targets, err := h.o.Domains.Targets(ctx, r.Domain.UUID)
	if err != nil {
		return false, err
	}
	if targets[p.Disk.Target] && p.State == record.Detaching {
		if err := h.o.Domains.Request(ctx, r.Domain.UUID, p.Disk.Target); err != nil {
			return false, err
		}
		if targets, err = h.o.Domains.Targets(ctx, r.Domain.UUID); err != nil {
			return false, err
		}
	}
	switch {
	case targets[p.Disk.Target] && p.State == record.Detaching:
		return false, nil
	case targets[p.Disk.Target] && p.State == record.Attaching:
		p.State = record.Attached
		return true, h.o.Table.Put(v, r.WithPlugged(p))
	case targets[p.Disk.Target]:
		return true, nil
	}
	if err := h.o.Domains.Release(ctx, r.Domain.UUID, p.Set); err != nil {
		return false, err
	}
	if err := h.o.Volumes.Unplug(ctx, r, p.Disk); err != nil {
		return false, err
	}
	if err := h.o.Table.Put(v, r.WithoutPlugged(p.Disk.Name)); err != nil {
		return false, err
	}
	h.o.Conditions.Update(v)
	table.Logger(h.o.Logger, r).Info("a disk is detached from the VM", "disk", p.Disk.Name, "target", p.Disk.Target)
	return true, nil
}
