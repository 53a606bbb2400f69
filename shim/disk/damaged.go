package disk

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// ErrDamaged means that a file that was made for a VM is not complete. QEMU would
// report that in its own words, or take an empty file for an empty disk.
var ErrDamaged = errdefs.ErrFailedPrecondition.WithMessage("a file of the VM is damaged")

// damaged is the error of a file in the container's folder.
func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%w: %s %s: the node may have lost power, or its disk has failed; remove the container, "+
		"and the next one gets a new file: this one has nothing of a guest that ran", ErrDamaged, path, fmt.Sprintf(format, args...))
}

// checkOverlay refuses a qcow2 file in the container's folder that is not one any more.
func checkOverlay(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return damaged(f.Name(), "is empty")
	}
	_, err = imageunpack.CheckOverlay(f, info.Size(), math.MaxInt64)
	if errors.Is(err, imageunpack.ErrUnusable) {
		return damaged(f.Name(), "is not the overlay that was made (%v)", err)
	}
	return err
}

// openOverlay opens a qcow2 file in the container's folder for reading and writing.
func openOverlay(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := checkOverlay(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openWhole opens a file in the container's folder that has at least so many bytes.
func openWhole(path string, flags int, least int64) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < least {
		err = damaged(path, "has %d bytes instead of %d or more", info.Size(), least)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
