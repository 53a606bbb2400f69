package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
)

// allocate allocates the space of a disk that was made here, if its volume's storage is allocated in advance. What the
// file holds stays. A device has what was written to it: zeros are written to devices, and never as discards.
func allocate(k Disk, f *os.File) error {
	if !k.Preallocated {
		return nil
	}
	size, err := persist.Size(f)
	if err != nil || size == 0 {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: preallocate %d bytes: the volume's file system does not allocate space in advance: "+
			"remove the annotation storage.preallocation of the PVC", ErrVolume, size)
	}
	if err != nil {
		return fmt.Errorf("preallocate %d bytes: %w", size, err)
	}
	return nil
}
