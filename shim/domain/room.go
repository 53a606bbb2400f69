package domain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNoRoom means that libvirtd could not write the state of a guest that runs.
var ErrNoRoom = errors.New("no room for the state of running guests")

// roomFile is the beginning of the names of files that CheckRoom writes. libvirtd
// ignores names without ".xml".
const roomFile = ".nodevirt-room-"

// CheckRoom returns an error that wraps [ErrNoRoom] if a libvirtd that starts would
// have no room in its run folder (/run/libvirt): it writes the state of each guest
// that runs, and kills each guest whose state it cannot write. So no libvirtd should
// start then; guests run without it.
//
// CheckRoom writes files of the same size beside libvirtd's, and removes them: only
// that shows that there are blocks, inodes and quota for all of them at once.
func CheckRoom(runDir string) error {
	dir := filepath.Join(runDir, "qemu")
	sizes, err := stateSizes(dir)
	if err != nil {
		return fmt.Errorf("read the state of running guests: %w", err)
	}
	var need int64
	var written []string
	defer func() {
		for _, path := range written {
			_ = os.Remove(path)
		}
	}()
	for i, size := range sizes {
		size = room(size)
		need += size
		path := filepath.Join(dir, roomFile+strconv.Itoa(i))
		written = append(written, path)
		if err == nil {
			err = os.WriteFile(path, make([]byte, size), 0o600)
		}
	}
	if errors.Is(err, fs.ErrPermission) { // it is not libvirtd's user
		return fmt.Errorf("check the room for the state of running guests: %w", err)
	}
	if err != nil {
		return noRoom(dir, err, need, len(sizes))
	}
	return nil
}

// FindRoom is CheckRoom for a node whose libvirtd may run: it only compares sizes, and so misses quotas. Files that it
// would write could take the room that libvirtd needs at the same time.
func FindRoom(runDir string) error {
	dir := filepath.Join(runDir, "qemu")
	sizes, err := stateSizes(dir)
	if err != nil {
		return fmt.Errorf("read the state of running guests: %w", err)
	}
	if len(sizes) == 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("find the room for the state of running guests: %w", os.NewSyscallError("statfs", err))
	}
	var need int64
	for _, size := range sizes {
		need += room(size)
	}
	full := st.Files > 0 && st.Ffree < uint64(len(sizes)) // a file system may not count its inodes
	if free := int64(st.Bfree) * st.Frsize; full || free < need {
		return noRoom(dir, fmt.Errorf("%d KiB and %d files are free", free>>10, st.Ffree), need, len(sizes))
	}
	return nil
}

// room returns what libvirtd needs for a domain whose file has a size: it writes a new file before it replaces the old
// one, and it may write other files of the domain.
func room(size int64) int64 { return 2*size + 4<<10 }

func noRoom(dir string, cause error, need int64, files int) error {
	return fmt.Errorf("%w below %s: %w; make room for %d KiB and %d files there (df -h %s; df -i %s): "+
		"the next libvirtd kills each guest whose state it cannot write, and guests run on without libvirtd",
		ErrNoRoom, dir, cause, need>>10+1, files, dir, dir)
}

// stateSizes returns the sizes of libvirtd's files of the domains whose QEMU runs.
func stateSizes(dir string) (sizes []int64, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.xml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the domain has just ended
		}
		if err != nil {
			return nil, err
		}
		s, ok, err := readStatus(file)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		if pid, err := strconv.Atoi(s.PID); ok && err == nil && IsQEMU(pid, s.Domain.Name) {
			sizes = append(sizes, info.Size())
		}
	}
	return sizes, nil
}
