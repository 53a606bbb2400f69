package move

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// lengths returns the sizes of the disks that are copied to other PVCs, by their names.
func (m *sources) lengths(r record.Container, names []string) (map[string]int64, error) {
	if len(names) > vmspec.MaxDisks {
		return nil, fmt.Errorf("%w: %d disks to copy, the limit is %d", vmerrors.ErrInvalid, len(names), vmspec.MaxDisks)
	}
	all := map[string]int64{}
	for _, name := range names {
		at := slices.IndexFunc(r.Spec.Disks, func(d vmspec.Disk) bool { return d.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%w: the VM did not start with a disk %.80q", vmerrors.ErrInvalid, name)
		}
		length, err := m.o.Disks.Length(r, r.Spec.Disks[at])
		if err != nil {
			return nil, err
		}
		all[name] = length
	}
	return all, nil
}

// waiting returns the names of the disks on this node that become copies of those of a guest that comes.
func waiting(r record.Container) []string {
	if r.Incoming == "" {
		return nil // they are the guest's
	}
	var all []string
	for _, d := range r.Spec.Disks {
		if d.Copied {
			all = append(all, d.Name)
		}
	}
	return all
}

// fit makes the PVCs that become copies ones for the guest's disks, and returns the record with that.
func (m *targets) fit(r record.Container, guest order.Guest) (record.Container, error) {
	copies := waiting(r)
	for name := range guest.Lengths {
		if !slices.Contains(copies, name) {
			return r, fmt.Errorf("%w: the source copies disk %.80q, for which the pod here has no PVC", vmerrors.ErrInvalid, name)
		}
	}
	if len(copies) == 0 {
		return r, nil
	}
	r.Disks = maps.Clone(r.Disks)
	for _, d := range r.Spec.Disks {
		length, sent := guest.Lengths[d.Name]
		switch {
		case !d.Copied:
			continue
		case !sent:
			return r, fmt.Errorf("%w: the source does not copy disk %q: update nodevirt on its node", vmerrors.ErrInvalid, d.Name)
		}
		content := r.Disks[d.Name]
		var err error
		if content.Length, err = m.o.Disks.Fit(r, d, length); err != nil {
			return r, err
		}
		r.Disks[d.Name] = content
	}
	return r, nil
}
