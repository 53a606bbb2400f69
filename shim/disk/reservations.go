package disk

import (
	"sync"

	"github.com/containerd/errdefs"
)

// ErrInUse says that another VM of this node uses a disk that one VM at a time can use.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("in use by another VM of this node")

// reservations are the disks that running VMs use alone, where no lock of the kernel
// ensures that: block devices, on which a lock would keep QEMU from freeing ranges,
// and disks of other nodes. There are none when a shim starts; [Maker.Recover] adds
// those of running VMs.
type reservations struct {
	mu sync.Mutex
	by map[string]string // owners of disks, by what they use
}

// take reserves something for a disk, or returns ErrInUse.
func (r *reservations) take(k Disk, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.other(k, what); err != nil {
		return err
	}
	if r.by == nil {
		r.by = map[string]string{}
	}
	r.by[what] = k.owner()
	return nil
}

// free returns ErrInUse if something is reserved for another disk.
func (r *reservations) free(k Disk, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.other(k, what)
}

func (r *reservations) other(k Disk, what string) error {
	if by := r.by[what]; by != "" && by != k.owner() {
		return ErrInUse
	}
	return nil
}

// drop ends the reservations for a disk.
func (r *reservations) drop(k Disk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, by := range r.by {
		if by == k.owner() {
			delete(r.by, what)
		}
	}
}
