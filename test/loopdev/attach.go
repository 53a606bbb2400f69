package loopdev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attach gives a file a free loop device, and returns the device, open. Flags are the kernel's, such as
// unix.LO_FLAGS_AUTOCLEAR for a device that goes with its last user.
func Attach(f *os.File, flags uint32) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("find a loop device: %w", err)
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		loop, err := open(n)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{
			Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: flags},
		})
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()                 // nothing was written
		if !errors.Is(err, unix.EBUSY) { // another process was faster
			return nil, fmt.Errorf("attach %s to %s: %w", f.Name(), loop.Name(), err)
		}
	}
}

// open opens a loop device, whose node is missing on a host without udev.
func open(n int) (*os.File, error) {
	path := fmt.Sprintf("/dev/loop%d", n)
	const loopMajor = 7
	err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}
