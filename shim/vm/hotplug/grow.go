package hotplug

import (
	"context"
	"fmt"
	"os"

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
	unlock() // the volume may keep its caller
	d, _, err := growing(r, a.Name)
	if err != nil {
		return order.Disk{}, err
	}
	if d.Source != vmspec.SourcePVC || d.ReadOnly || d.CDROM {
		return order.Disk{Name: d.Name, State: order.Attached, Target: d.Target}, nil
	}
	volumes := h.accesses.Of(v)
	access, err := volumes.take(d.Name)
	if err != nil {
		return order.Disk{}, err
	}
	defer volumes.leave(access)
	var (
		file *os.File
		size int64
	)
	err = access.do(ctx, v.Exited(), func(context.Context) (err error) {
		file, size, err = h.o.Volumes.Room(r, d, a.Size)
		return err
	}, func() {
		if file != nil {
			_ = file.Close()
		}
	})
	if err != nil {
		return order.Disk{}, err
	}
	defer file.Close()
	return h.growTo(ctx, v, a.Name, size, file)
}

// growTo makes a disk as large as its opened volume.
func (h *Hotplugs) growTo(ctx context.Context, v *table.VM, name string, size int64, file *os.File) (order.Disk, error) {
	r, unlock, err := h.lock(ctx, v)
	if err != nil {
		return order.Disk{}, err
	}
	defer unlock()
	d, set, err := growing(r, name)
	if err != nil {
		return order.Disk{}, err
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := h.o.Domains.Grow(ctx, r.Domain.UUID, domain.Growth{Target: d.Target, Size: size, Set: set}, file); err != nil {
		return order.Disk{}, err
	}
	table.Logger(h.o.Logger, r).Info("a disk has the size of its volume", "disk", d.Name, "size", size)
	return order.Disk{Name: d.Name, State: order.Attached, Target: d.Target, Size: size}, nil
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
