// Package loopfs makes file systems of a kind and a size for tests, on a file, and block devices.
//
// It owns the file, its loop device and the mount. The mount is in no file tree: it
// is reached through a descriptor of this process, and ends with that, as does the
// loop device; so nothing is left however a test ends.
package loopfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/needs"
)

// Kinds of file systems, by their names to the kernel and to mkfs.
const (
	Ext4  = "ext4"  // without reflinks
	XFS   = "xfs"   // with reflinks
	Btrfs = "btrfs" // with reflinks
)

// FS is a mounted file system.
type FS struct {
	// Path is its top folder, in this process alone: a child finds it by Attach only.
	Path  string
	mount int
	file  string
}

// New makes and mounts a file system of size bytes, 320 MiB or more for xfs, whose
// file is in dir. The caller closes it.
func New(dir, kind string, size int64) (_ *FS, err error) {
	f, err := os.CreateTemp(dir, kind+"-*.img")
	if err != nil {
		return nil, fmt.Errorf("make a file for %s: %w", kind, err)
	}
	fs := &FS{file: f.Name(), mount: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.Close())
		}
	}()
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return nil, fmt.Errorf("make a file for %s: %w", kind, err)
	}
	force := map[string]string{Ext4: "-F", XFS: "-f", Btrfs: "-f"}[kind]
	if out, err := exec.Command("mkfs."+kind, "-q", force, fs.file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make %s: %w: %s", kind, err, bytes.TrimSpace(out))
	}
	loop, err := loopdev.Attach(f, unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the mount holds it from then on
	if fs.mount, err = mount(kind, loop.Name()); err != nil {
		return nil, err
	}
	fs.Path = fmt.Sprintf("/proc/self/fd/%d", fs.mount)
	return fs, os.Chmod(fs.Path, 0o711)
}

// Close unmounts and removes it. Open files keep the mount, but not its file's name.
func (fs *FS) Close() error {
	var err error
	if fs.mount >= 0 {
		err = unix.Close(fs.mount)
	}
	return errors.Join(err, os.Remove(fs.file))
}

// Attach shows it at a folder too, for other processes, until [Detach].
func (fs *FS) Attach(dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = unix.MoveMount(fs.mount, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("mount on %s: %w", dir, err)
	}
	return nil
}

// Detach takes it from a folder.
func Detach(dir string) error {
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// Device is a block device of zeros, of a size in bytes, which goes when the test ends.
func Device(t testing.TB, size int64) (path string) {
	t.Helper()
	needs.Parts(t, "root")
	f, err := os.CreateTemp(t.TempDir(), "device-*.img")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	loop, err := loopdev.Attach(f, unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Close() }) // nothing was written by it
	return loop.Name()
}

// Grow makes a device of [Device] larger, to a size in bytes.
func Grow(t testing.TB, device string, size int64) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(string(bytes.TrimSpace(file)), size); err != nil {
		t.Fatal(err)
	}
	loop, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		t.Fatal(err)
	}
}

// mount mounts a device nowhere, and returns the mount's descriptor.
func mount(kind, device string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", device); err != nil {
		return -1, fmt.Errorf("mount %s on %s: %w", kind, device, err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mount %s on %s: %w", kind, device, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, fmt.Errorf("mount %s on %s: %w", kind, device, err)
	}
	return fd, nil
}
