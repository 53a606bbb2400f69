// Package loopdev attaches files to loop devices, finds the device of a file, and detaches it. Loop
// devices belong to the machine: the nodes of a test see the same ones.
package loopdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Device is a loop device that is attached.
type Device struct {
	Path   string // such as /dev/loop3
	File   string // the path of what it is attached to, in the mount namespace of who attached it
	Number uint64 // the device's own
	Behind uint64 // the number of the block device that it is attached to; 0 if that is a file
	Leaves bool   // the kernel detaches it when its last user closes it

	file, inode uint64 // the device and the inode of the file behind it
}

// All returns the machine's attached devices.
func All() ([]Device, error) {
	bound, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	var all []Device
	for _, folder := range bound {
		d, err := status("/dev/" + filepath.Base(filepath.Dir(folder)))
		if err == nil {
			var file []byte
			file, err = os.ReadFile(filepath.Join(folder, "backing_file"))
			d.File = strings.TrimSpace(string(file))
		}
		if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
			continue // it was detached meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func status(path string) (Device, error) {
	f, err := os.Open(path)
	if err != nil {
		return Device{}, fmt.Errorf("look at loop device: %w", err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return Device{}, fmt.Errorf("look at %s: %w", path, err)
	}
	own, err := number(path)
	return Device{
		Path: path, Number: own, Behind: info.Rdevice, Leaves: info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0,
		file: info.Device, inode: info.Inode,
	}, err
}

func number(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return s.Rdev, nil
}

// Of returns the devices that are attached to a file.
func Of(file string) ([]Device, error) {
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil {
		return nil, fmt.Errorf("look at %s: %w", file, err)
	}
	all, err := All()
	if err != nil {
		return nil, err
	}
	var its []Device
	for _, d := range all {
		if d.file == s.Dev && d.inode == s.Ino {
			its = append(its, d)
		}
	}
	return its, nil
}

// ErrUsed is returned for a device that is detached as soon as its last user closes it.
var ErrUsed = errors.New("the device is in use")

// Detach detaches the device; ErrUsed if a process, or a mount, still uses it.
func (d Device) Detach() error {
	f, err := os.Open(d.Path)
	if err != nil {
		return fmt.Errorf("detach loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	_ = f.Close() // now the kernel detaches it
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", d.Path, err)
	}
	for range 100 { // udev may look at it
		now, err := status(d.Path)
		if errors.Is(err, unix.ENXIO) || now.file != d.file || now.inode != d.inode {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("detach %s: %w", d.Path, ErrUsed)
}

// Resize gives the device the size of its file.
func (d Device) Resize() error {
	f, err := os.Open(d.Path)
	if err != nil {
		return fmt.Errorf("resize loop device: %w", err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("resize %s: %w", d.Path, err)
	}
	return nil
}

// Flush writes to the file what processes and a mounted file system have written to the device.
func (d Device) Flush() error {
	f, err := os.Open(d.Path)
	if err != nil {
		return fmt.Errorf("flush loop device: %w", err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("flush %s: %w", d.Path, err)
	}
	return nil
}
