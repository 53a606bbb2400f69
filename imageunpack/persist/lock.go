package persist

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ErrInUse means that another VM, another writer or the node itself uses the volume.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("the volume is in use by another VM, is being written for one, or is mounted on the node")

// Lock locks a volume until unlock is called or the process ends; a file also until it is closed. If
// the volume is in use, Lock returns ErrInUse at once.
//
// The lock of a file excludes QEMU, which locks its files too. A locked device can't be mounted, by any
// of its device nodes. QEMU can still open it, but not free ranges of it. So lock a device only
// while no VM uses it.
func Lock(volume *os.File) (unlock func() error, err error) {
	_, unlock, err = lock(volume)
	return unlock, err
}

// CheckWriter returns ErrInUse if the volume is locked by [Lock]. Those that only read the volume do not
// lock it. It knows locks of files only: a device that the node has mounted can still be read.
func CheckWriter(volume *os.File) error {
	device, err := isDevice(volume)
	if err != nil || device {
		return err
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(volume.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return fmt.Errorf("find the volume's lock: %w", err)
	}
	if lock.Type != unix.F_UNLCK {
		return ErrInUse
	}
	return nil
}

// InUse reports whether a process has a lock of a file, as QEMU has of each that it has opened. It knows
// the locks of other nodes where the file system has them.
func InUse(file *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, fmt.Errorf("find the file's locks: %w", err)
	}
	return lock.Type != unix.F_UNLCK, nil
}

// lock is Lock, and also returns the file to write the volume with.
func lock(volume *os.File) (locked *os.File, unlock func() error, err error) {
	device, err := isDevice(volume)
	if err != nil {
		return nil, nil, err
	}
	if device {
		return lockDevice(volume)
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

// lockDevice opens a device again, exclusively (open(2), O_EXCL for block devices). The kernel frees
// ranges with dirty pages only by that descriptor.
func lockDevice(volume *os.File) (locked *os.File, unlock func() error, err error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", volume.Fd()), os.O_RDWR|unix.O_EXCL|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, nil, ErrInUse
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lock the volume: %w", err)
	}
	return f, f.Close, nil
}
