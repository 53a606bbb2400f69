package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Room returns the free bytes of the volume of a backup, and its size.
func (Backups) Room(b record.Backup) (free, size int64, err error) {
	err = inFolder(b.Folder, func(root *os.Root) error {
		f, err := root.Open(".")
		if err != nil {
			return err
		}
		defer f.Close()
		var s unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
			return os.NewSyscallError("fstatfs", err)
		}
		free, size = int64(s.Bavail)*s.Frsize, int64(s.Blocks)*s.Frsize
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: read the room for the backup: %w", ErrVolume, err)
	}
	return free, size, err
}

// Listen creates a listening socket in the folder of a volume, in place of a former one. Programs of
// every user who have the folder can connect, since the volume's pod decides who has it. A symbolic
// link in the volume leads nowhere.
func (Backups) Listen(folder, name string) (*os.File, error) {
	var listener *os.File
	err := inFolder(folder, func(root *os.Root) error {
		if err := removeSocket(root, name); err != nil {
			return err
		}
		dir, err := root.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		// By way of the folder that is open: bind follows no link at the end of a path.
		path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		l.SetUnlinkOnClose(false)
		if err := root.Chmod(name, 0o666); err != nil {
			return err
		}
		listener, err = l.File()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: create a socket for the readers of the backup: %w", ErrVolume, err)
	}
	return listener, nil
}

// Unlisten removes the socket of a name. One that is missing is no error.
func (Backups) Unlisten(folder, name string) error {
	err := inFolder(folder, func(root *os.Root) error { return removeSocket(root, name) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: remove the socket for the readers of the backup: %w", ErrVolume, err)
	}
	return nil
}

func removeSocket(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
