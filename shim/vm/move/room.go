package move

import (
	"fmt"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Groups reads what VMs use; [resources.Groups].
type Groups interface {
	Stats(r record.Container) (cgroup.Stats, error)
}

// perCopy is the memory in bytes that QEMU takes for each disk that it copies, as measured with 7.2, and forOthers what the
// pod's other processes take, and what QEMU's own memory varies by meanwhile.
const (
	perCopy   = 17 << 20
	forOthers = 8 << 20
)

// room returns an error if the copy of disks would go beyond the memory limit of a VM, which would end the guest.
func (m *sources) room(r record.Container, copies int) error {
	if copies == 0 {
		return nil
	}
	used, err := m.o.Groups.Stats(r)
	if err != nil {
		return fmt.Errorf("memory of VM container %q: %w", r.ID, err)
	}
	needs := uint64(copies)*perCopy + forOthers
	if used.MemoryLimit == 0 || used.RSS+needs <= used.MemoryLimit {
		return nil
	}
	const mebibyte = 1 << 20
	return fmt.Errorf("%w: QEMU needs %d MiB to copy %d disks, and uses %d MiB of at most %d: raise the VM's memory limit, or the RuntimeClass's overhead",
		vmerrors.ErrState, needs/mebibyte, copies, used.RSS/mebibyte, used.MemoryLimit/mebibyte)
}
