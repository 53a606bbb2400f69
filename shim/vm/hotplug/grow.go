package hotplug

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// grow makes a disk as large as its PVC, which has been expanded. It answers with the
// disk's size; 0 for a disk that a node does not grow.
func (h *Hotplugs) grow(ctx context.Context, v *table.VM, a order.Growth) (order.Disk, error) {
	r, unlock, err := h.lock(ctx, v)
	if err != nil {
		return order.Disk{}, err
	}
	defer unlock()
	d, set, err := growing(r, a.Name)
	if err != nil {
		return order.Disk{}, err
	}
	answer := order.Disk{Name: d.Name, State: order.Attached, Target: d.Target}
	if d.Source != vmspec.SourcePVC || d.ReadOnly || d.CDROM {
		return answer, nil
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	file, size, err := h.o.Volumes.Room(r, d, a.Size)
	if err != nil {
		return order.Disk{}, err
	}
	defer file.Close()
	answer.Size = size
	if err := h.o.Domains.Grow(ctx, r.Domain.UUID, domain.Growth{Target: d.Target, Size: size, Set: set}, file); err != nil {
		return order.Disk{}, err
	}
	table.Logger(h.o.Logger, r).Info("a disk has the size of its volume", "disk", d.Name, "size", answer.Size)
	return answer, nil
}

// growing returns the disk of a name that the VM has, and the set of one that it got.
func growing(r record.Container, name string) (vmspec.Disk, *int, error) {
	if i := r.FindPlugged(name); i >= 0 {
		switch p := r.Plugged[i]; {
		case p.State == record.Attached && p.Came:
			return p.Disk, nil, nil
		case p.State == record.Attached:
			return p.Disk, &p.Set, nil
		}
		return vmspec.Disk{}, nil, fmt.Errorf("%w: disk %q is being attached or detached", vmerrors.ErrState, name)
	}
	for _, d := range r.Spec.Disks {
		if d.Name == name {
			return d, nil, nil
		}
	}
	return vmspec.Disk{}, nil, fmt.Errorf("%w: it has no disk %q", vmerrors.ErrInvalid, name)
}
