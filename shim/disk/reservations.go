package disk

import (
	"errors"
	"sync"
)

// ErrInUse says that another machine of this node has a disk that is one machine's at a time.
var ErrInUse = errors.New("in use by another VM of this node")

// held is what machines that run have for themselves alone, and no lock of the kernel's
// keeps for them: devices, whose freed ranges QEMU could not give back beside one, and
// disks of other nodes. It is empty when a shim starts, which [Disks.Recover] changes.
type held struct {
	mu sync.Mutex
	by map[string]string // disks of machines, as owner names them, by what they have
}

// take gives what to a disk, or is ErrInUse.
func (h *held) take(k Disk, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.other(k, what); err != nil {
		return err
	}
	if h.by == nil {
		h.by = map[string]string{}
	}
	h.by[what] = owner(k.VM.ID, k.Disk)
	return nil
}

// free is ErrInUse if what is another disk's.
func (h *held) free(k Disk, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.other(k, what)
}

func (h *held) other(k Disk, what string) error {
	if by := h.by[what]; by != "" && by != owner(k.VM.ID, k.Disk) {
		return ErrInUse
	}
	return nil
}

// drop gives back what a disk has.
func (h *held) drop(k Disk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for what, by := range h.by {
		if by == owner(k.VM.ID, k.Disk) {
			delete(h.by, what)
		}
	}
}
