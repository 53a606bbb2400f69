package move

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// departing describes the disks that a guest has got since it runs to the target's node.
func departing(r record.Container) []order.Plugged {
	var all []order.Plugged
	for _, p := range r.Plugged {
		all = append(all, order.Plugged{
			Disk: p.Order, Name: p.Disk.Name, Target: p.Disk.Target, Path: imagePath(p.Disk.Path), Content: identity(p.Content),
			Preallocated: p.Disk.Preallocated,
		})
	}
	return all
}

// imagePath returns the path of a registry disk as KubeVirt describes it: from the image's root, or "".
func imagePath(of string) string {
	if of == "" || path.IsAbs(of) {
		return of
	}
	return "/disk/" + of
}

// arriving returns the disks that a guest has got as this node attaches them to the VM of the guest that comes.
func (m *targets) arriving(ctx context.Context, r record.Container, a order.Reception) ([]record.PluggedDisk, error) {
	all := a.Guest.Plugged
	if len(all) > order.MaxPlugged {
		return nil, fmt.Errorf("%w: the guest has got %d disks since it runs, the limit is %d", vmerrors.ErrInvalid, len(all), order.MaxPlugged)
	}
	var plugged []record.PluggedDisk
	for i, one := range all {
		container, has := a.Volumes[one.Name]
		if !has {
			return nil, fmt.Errorf("%w: the order names no volume for disk %.80q, which the guest has got since it runs: update nodevirt-controller",
				vmerrors.ErrInvalid, one.Name)
		}
		config, err := attachment.Find(ctx, m.o.Pods, r, container)
		if err != nil {
			return nil, err
		}
		d, err := vmspec.Hotplug(one.Disk, one.Path, 0, one.Preallocated, config)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
		}
		d.Target = one.Target
		if err := fits(r, plugged, d, one.Name); err != nil {
			return nil, err
		}
		plugged = append(plugged, record.PluggedDisk{
			State: record.Attached, Disk: d, Container: container, Set: i, Order: one.Disk, Came: true,
		})
	}
	if err := markCopies(plugged, a.Copied); err != nil {
		return nil, err
	}
	for _, p := range plugged {
		if p.Disk.Copied {
			continue
		}
		if err := m.o.Disks.Same(r, p.Disk); err != nil {
			return nil, err
		}
	}
	return plugged, nil
}

// fits returns an error if a VM with some disks can't have another one. The name is what the source
// calls it.
func fits(r record.Container, plugged []record.PluggedDisk, d vmspec.Disk, name string) error {
	for _, other := range r.Spec.Disks {
		drive := d.CDROM && other.Source == vmspec.SourceDrive && other.Name == d.Name
		if drive && d.Target == other.Target && d.Bus == other.Bus {
			return distinct(plugged, d, name)
		}
		if other.Name == d.Name || other.Target == d.Target {
			return fmt.Errorf("%w: disk %q on %.20q: the VM starts with disk %q on %s here", vmerrors.ErrInvalid, d.Name, d.Target, other.Name, other.Target)
		}
	}
	if d.CDROM {
		return fmt.Errorf("%w: the VM has no empty CD-ROM drive %q here", vmerrors.ErrInvalid, d.Name)
	}
	return distinct(plugged, d, name)
}

func distinct(plugged []record.PluggedDisk, d vmspec.Disk, name string) error {
	twice := slices.ContainsFunc(plugged, func(p record.PluggedDisk) bool { return p.Disk.Name == d.Name || p.Disk.Target == d.Target })
	if d.Name != name || twice || !vmspec.OnBus(d.Target, d.Bus) {
		return fmt.Errorf("%w: the source names disk %.80q %.80q, on %.20q", vmerrors.ErrInvalid, d.Name, name, d.Target)
	}
	return nil
}

// replace returns the record with the disks that come with the guest, which the source describes, and undoes what an
// order before attached of others.
func (m *targets) replace(
	ctx context.Context, r record.Container, plugged []record.PluggedDisk, theirs []order.Plugged,
) (record.Container, error) {
	if err := m.unplug(ctx, r); err != nil {
		return r, err
	}
	r.Plugged = slices.Clone(plugged)
	for i := range r.Plugged {
		p := &r.Plugged[i]
		content, err := m.o.Disks.Acquire(ctx, r, p.Disk)
		if err == nil && identity(content) != theirs[i].Content {
			err = fmt.Errorf("%w: disk %q is %s here and %.200q on the source: the image's tag has changed",
				vmerrors.ErrInvalid, p.Disk.Name, identity(content), theirs[i].Content)
		}
		if err != nil {
			r.Plugged = r.Plugged[:i+1]
			return r, errors.Join(err, m.unplug(ctx, r))
		}
		p.Content = content
	}
	return r, nil
}

// unplug undoes what an order has attached of the disks that come with the guest.
func (m *targets) unplug(ctx context.Context, r record.Container) error {
	var errs []error
	for _, p := range r.Plugged {
		errs = append(errs, m.o.Disks.Unplug(ctx, r, p.Disk))
	}
	return errors.Join(errs...)
}
