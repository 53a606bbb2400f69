package persist

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ErrInUse says that another machine, another writer or the node itself has the volume.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("the volume is in use by another VM, is being written for one, or is mounted on the node")

// Lock takes a volume for its caller alone, until unlock is called or the process
// ends; of a file, also until it is closed. Without waiting it is ErrInUse.
//
// QEMU, which takes its own kind of lock on files, is kept out and keeps out. A
// device, by whichever of its nodes it is open, can't be mounted meanwhile. QEMU may
// use it nevertheless, but not free ranges of it: so such a lock is for moments in
// which no machine has the device.
func Lock(volume *os.File) (unlock func() error, err error) {
	_, unlock, err = lock(volume)
	return unlock, err
}

// lock is Lock, and returns the file by which the volume is written.
func lock(volume *os.File) (locked *os.File, unlock func() error, err error) {
	device, err := isDevice(volume)
	if err != nil {
		return nil, nil, err
	}
	if device {
		return claimDevice(volume)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(volume.Fd(), unix.F_OFD_SETLK, &lock)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES):
		return nil, nil, ErrInUse
	case err != nil:
		return nil, nil, fmt.Errorf("lock the volume: %w", err)
	}
	return volume, func() error {
		lock.Type = unix.F_UNLCK
		return unix.FcntlFlock(volume.Fd(), unix.F_OFD_SETLK, &lock)
	}, nil
}

// claimDevice opens a device once more, exclusively (open(2), O_EXCL of block devices).
// By another descriptor the kernel frees no range of which pages are dirty.
func claimDevice(volume *os.File) (locked *os.File, unlock func() error, err error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", volume.Fd()), os.O_RDWR|unix.O_EXCL|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, nil, ErrInUse
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lock the volume: %w", err)
	}
	return f, f.Close, nil
}
