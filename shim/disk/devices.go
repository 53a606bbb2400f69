package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// devices are block devices of the node.
type devices interface {
	// open opens a block device, for writing too unless readOnly is true, and returns its
	// number. Another file is ErrVolume.
	open(path string, readOnly bool) (*os.File, uint64, error)
	// blockSize returns the size of an open device's blocks.
	blockSize(f *os.File) (vmspec.BlockSize, error)
	// path returns where makeNode makes the node of a name.
	path(name string) string
	// nodes returns the paths of all nodes whose names begin with a prefix.
	nodes(prefix string) ([]string, error)
	// makeNode makes a node of a device, which a user can open.
	makeNode(path string, number uint64, uid, gid uint32) error
}

// kernelDevices are the kernel's.
type kernelDevices struct{}

func (kernelDevices) open(path string, readOnly bool) (*os.File, uint64, error) {
	f, err := os.OpenFile(path, access(readOnly)|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFBLK {
		err = fmt.Errorf("%w: it is not a block device", ErrVolume)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Rdev, nil
}

// access returns the flag to open a volume with.
func access(readOnly bool) int {
	if readOnly {
		return os.O_RDONLY
	}
	return os.O_RDWR
}

// path is in /dev, since other file systems may be mounted without device nodes.
func (kernelDevices) path(name string) string { return filepath.Join("/dev", name) }

func (k kernelDevices) nodes(prefix string) ([]string, error) {
	return filepath.Glob(k.path(prefix) + "*")
}

func (kernelDevices) makeNode(path string, number uint64, uid, gid uint32) error {
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(number)); err != nil {
		return fmt.Errorf("create the VM's node of the device: %w", err)
	}
	return os.Chown(path, int(uid), int(gid))
}
