package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// openQueue opens a queue of a tap, which [attachQueue] attaches, or of a macvtap.
func openQueue(link netlink.Link) (*os.File, error) {
	if link.Type() != "macvtap" {
		return openDevice("/dev/net/tun")
	}
	number, err := macvtapNumber(link)
	if err != nil {
		return nil, err
	}
	// The node's own /dev may have another namespace's device under the usual name. Other file systems
	// may be mounted without device nodes.
	folder, err := os.MkdirTemp("/dev", "nodevirt-macvtap-")
	if err != nil {
		return nil, fmt.Errorf("make the device's node: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }() // the node of an open device is of no use
	node := filepath.Join(folder, "tap")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(number)); err != nil {
		return nil, fmt.Errorf("make the device's node: %w", err)
	}
	f, err := openDevice(node)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: the device is open in another process", ErrInUse)
	}
	return f, err
}

// openDevice opens a device without Go's poller: QEMU gets it as it is.
func openDevice(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// macvtapNumber returns the number of a macvtap's character device. Only the sysfs of the device's network
// namespace has it, which the calling thread is in, and which is mounted nowhere for that.
func macvtapNumber(link netlink.Link) (uint64, error) {
	sysfs, err := mountSysfs()
	if err != nil {
		return 0, fmt.Errorf("look for the device of macvtap %s: %w", link.Attrs().Name, err)
	}
	defer sysfs.Close()
	// The kernel has moved the device below a folder of its class.
	name := "tap" + strconv.Itoa(link.Attrs().Index)
	for _, at := range []string{filepath.Join("macvtap", name), name} {
		text, err := readAt(sysfs, filepath.Join("class/net", link.Attrs().Name, at, "dev"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		major, minor, _ := strings.Cut(strings.TrimSpace(text), ":")
		a, err := strconv.ParseUint(major, 10, 32)
		b, err2 := strconv.ParseUint(minor, 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return 0, fmt.Errorf("device %q of macvtap %s: %w", text, link.Attrs().Name, err)
		}
		return unix.Mkdev(uint32(a), uint32(b)), nil
	}
	return 0, fmt.Errorf("%w: macvtap %s has no device", ErrUnsuited, link.Attrs().Name)
}

// mountSysfs returns the root of a new sysfs, which shows the calling thread's network namespace.
func mountSysfs() (*os.File, error) {
	fd, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fd)
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	root, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(root), "sysfs"), nil
}

func readAt(dir *os.File, path string) (string, error) {
	fd, err := unix.Openat(int(dir.Fd()), path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buffer := make([]byte, 32)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(buffer[:n]), nil
}
