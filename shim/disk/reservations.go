package disk

import (
	"sync"

	"github.com/containerd/errdefs"
)

// ErrInUse says that another VM of this node uses a disk that one VM at a time can use.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("in use by another VM of this node")

// reservations are the disks that running VMs use alone, where no lock of the kernel
// ensures that: block devices, on which a lock would keep QEMU from freeing ranges,
// and disks of other nodes. Disks that only read share it, and so do disks that are all
// shareable. There are none when a shim starts; [Maker.Recover] adds those of running
// VMs.
type reservations struct {
	mu sync.Mutex
	by map[string]map[string]use // what disks use, their owners, and how these use it
	// managed are the containers whose reservations are known.
	managed map[string]bool
}

// use is how a disk uses its volume.
type use int

const (
	alone use = iota
	reads
	shares
)

func (k Disk) use() use {
	switch {
	case k.Shareable:
		return shares
	case k.ReadOnly:
		return reads
	}
	return alone
}

// take reserves something for a disk, or returns ErrInUse.
func (r *reservations) take(k Disk, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.other(k, what); err != nil {
		return err
	}
	if r.by == nil {
		r.by = map[string]map[string]use{}
	}
	if r.by[what] == nil {
		r.by[what] = map[string]use{}
	}
	r.by[what][k.owner()] = k.use()
	return nil
}

// free returns ErrInUse if something is reserved for another disk.
func (r *reservations) free(k Disk, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.other(k, what)
}

func (r *reservations) other(k Disk, what string) error {
	for by, as := range r.by[what] {
		if by != k.owner() && (as == alone || as != k.use()) {
			return ErrInUse
		}
	}
	return nil
}

// drop ends the reservations for a disk.
func (r *reservations) drop(k Disk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, by := range r.by {
		delete(by, k.owner())
		if len(by) == 0 {
			delete(r.by, what)
		}
	}
}

// manage notes that what the disks of a container use is reserved, while its VM may run.
func (r *reservations) manage(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.managed == nil {
		r.managed = map[string]bool{}
	}
	r.managed[container] = true
}

// forget undoes manage.
func (r *reservations) forget(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.managed, container)
}

func (r *reservations) manages(container string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.managed[container]
}
