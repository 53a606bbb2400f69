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
	r = r.AsStarted()
	for _, name := range names {
		at := slices.IndexFunc(r.Spec.Disks, func(d vmspec.Disk) bool { return d.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%w: the VM has no disk %.80q", vmerrors.ErrInvalid, name)
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
	for _, d := range r.AsStarted().Spec.Disks {
		if d.Copied {
			all = append(all, d.Name)
		}
	}
	return all
}

// markCopies makes disks of some names, which the guest has got, copies.
func markCopies(plugged []record.PluggedDisk, names []string) error {
	for _, name := range names {
		at := slices.IndexFunc(plugged, func(p record.PluggedDisk) bool { return p.Disk.Name == name })
		if at < 0 || !plugged[at].Disk.Copies() {
			return fmt.Errorf("%w: the guest has got no disk %.80q on a volume that it alone writes", vmerrors.ErrInvalid, name)
		}
		plugged[at].Disk.Copied = true
	}
	return nil
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
	fit := func(d vmspec.Disk, content record.Disk) (record.Disk, error) {
		length, sent := guest.Lengths[d.Name]
		switch {
		case !d.Copied:
			return content, nil
		case !sent:
			return content, fmt.Errorf("%w: the source does not copy disk %q: update nodevirt on its node", vmerrors.ErrInvalid, d.Name)
		}
		var err error
		content.Length, err = m.o.Disks.Fit(r, d, length)
		return content, err
	}
	r.Disks, r.Plugged = maps.Clone(r.Disks), slices.Clone(r.Plugged)
	for _, d := range r.Spec.Disks {
		content, err := fit(d, r.Disks[d.Name])
		if err != nil {
			return r, err
		}
		if d.Copied {
			r.Disks[d.Name] = content
		}
	}
	for i := range r.Plugged {
		var err error
		if r.Plugged[i].Content, err = fit(r.Plugged[i].Disk, r.Plugged[i].Content); err != nil {
			return r, err
		}
	}
	return r, nil
}
