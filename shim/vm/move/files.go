package move

import (
	"slices"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// find returns an error if the files of the disks with which a guest that comes was started may be others here.
func (m *targets) find(r record.Container) error {
	for _, d := range r.Spec.Disks {
		if d.Source != vmspec.SourcePVC || d.Block || d.Copied {
			continue
		}
		if err := m.o.Disks.Same(r, d); err != nil {
			return err
		}
	}
	return nil
}

// otherFiles reports whether libvirt must move a guest without its check of the files' file systems. It accepts network
// file systems alone, and does not find that of a file which the guest has got since it runs: such a domain names a
// descriptor of QEMU. The target's node has checked the files, and its QEMU drops what the node has cached of them.
func otherFiles(r record.Container, target order.Identity) bool {
	if slices.ContainsFunc(r.Plugged, func(p record.PluggedDisk) bool { return !p.Disk.Block }) {
		return true
	}
	on := func(source vmspec.Source) bool {
		return slices.ContainsFunc(r.Spec.Disks, func(d vmspec.Disk) bool { return d.Source == source && !d.Block })
	}
	return target.Files && on(vmspec.SourcePVC) && !on(vmspec.SourceHostDisk) // the target does not look for hostDisks
}
