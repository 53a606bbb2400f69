package disk

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// volume is a disk on a PVC.
func (a *Attachments) volume(r record.Container, d vmspec.Disk) (k Disk, f *os.File, err error) {
	k = Disk{Disk: d, Content: r.Disks[d.Name], VM: r}
	if !k.Copies() {
		return k, nil, fmt.Errorf("%w: disk %q is not copied to another PVC", ErrVolume, k.Name)
	}
	f, err = a.volumes.open(k, k.Copied && k.VM.Incoming != "")
	return k, f, k.wrap("open", err)
}

// Length returns how many bytes of its PVC a guest has as a disk.
func (a *Attachments) Length(r record.Container, d vmspec.Disk) (int64, error) {
	k, f, err := a.volume(r, d)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if k.Content.Length > 0 {
		return k.Content.Length, nil
	}
	size, err := persist.Size(f)
	return size, k.wrap("measure", err)
}

// Fit makes a PVC one to which a guest's disk of a length in bytes can be copied, and returns the length if the PVC is
// longer, as a device may be; else 0. What is in the PVC is lost.
func (a *Attachments) Fit(r record.Container, d vmspec.Disk, length int64) (int64, error) {
	k, f, err := a.volume(r, d)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if length <= 0 {
		return 0, fmt.Errorf("%w: disk %q has %d bytes", ErrVolume, k.Name, length)
	}
	if err := lockedNow(k, f); err != nil {
		return 0, k.wrap("open", err)
	}
	size, err := persist.Size(f)
	if err == nil && !k.Block {
		if size == 0 { // the file was made here, too
			err = markMade(f)
		}
		if err = errors.Join(err, f.Truncate(length)); err == nil {
			err = allocate(k, f)
		}
	}
	switch {
	case err != nil:
		return 0, k.wrap("resize", err)
	case !k.Block:
		return 0, nil
	case size < length:
		return 0, fmt.Errorf("%w: disk %q has %d bytes, and its new PVC %d: use a larger one", ErrVolume, k.Name, length, size)
	case size == length:
		return 0, nil
	}
	return length, nil
}
