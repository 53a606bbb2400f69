package hotplug

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// detach takes a disk away. It waits for a while until the guest has released it, and the
// node goes on to ask the guest afterwards.
func (h *Hotplugs) detach(ctx context.Context, v *table.VM, a order.Name) (order.Disk, error) {
	if err := h.beginDetach(ctx, v, a.Name); err != nil {
		return order.Disk{}, err
	}
	h.settleLater(v)
	return control.Settled(ctx, v, func() (order.Disk, bool) {
		d := about(v.Record(), a.Name)
		return d, d.State == order.None
	}, order.Disk{Name: a.Name, State: order.None})
}

// beginDetach records that a disk goes, and begins that.
func (h *Hotplugs) beginDetach(ctx context.Context, v *table.VM, name string) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	i := r.FindPlugged(name)
	if i < 0 || r.State != record.Running {
		for _, d := range r.Spec.Disks {
			if d.Name == name && d.Source != vmspec.SourceDrive {
				return fmt.Errorf("%w: the VM started with disk %q, and keeps it until it ends", vmerrors.ErrState, name)
			}
		}
		return nil
	}
	if r.Incoming != "" || h.o.Moves.Moving(v) {
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	}
	if r.BackingUp() {
		return fmt.Errorf("%w: disk %q is kept until the backup %s has ended", vmerrors.ErrState, name, r.Backup.Name)
	}
	p := r.Plugged[i]
	if h.accesses.Of(v).has(name) {
		return fmt.Errorf("%w: another order for disk %q is carried out; try again", vmerrors.ErrState, name)
	}
	if p.State != record.Detaching {
		p.State = record.Detaching
		if err := h.o.Table.Put(v, r.WithPlugged(p)); err != nil {
			return err
		}
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if _, err := h.settleOne(ctx, v, p); err != nil {
		table.Logger(h.o.Logger, r).Warn("detaching a disk failed, retrying", "disk", name, "error", err)
	}
	return nil
}
