package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/config"
)

// ownFolder is a folder whose contents only one shim may use.
type ownFolder struct {
	path string
	mode os.FileMode // of a folder that lockFolders creates
	// what is the folder's owner, with its verb, and remedy is what the user can do.
	what, remedy string
}

// ownFolders returns the folders of a config that two shims could share, with or without
// the same listen. A shim removes what it finds there and doesn't know: the overlays of
// running guests in the root, their helpers' files in the run folder, exports in tgtd,
// leases of images in containerd.
func ownFolders(c config.Config) []ownFolder {
	return []ownFolder{
		{c.Root, 0o711, "its records and disks", "set another root, and another run and listen, in the config"},
		{c.Run, 0o755, "its sockets", "set another run, and another root and listen, in the config"},
		{c.Libvirt.Run, 0o755, "its libvirtd", "set libvirt.uri and libvirt.run in the config to those of another libvirtd"},
		{filepath.Dir(c.ISCSI.Socket), 0o700, "its tgtd", "set iscsi.socket in the config to that of another tgtd"},
		{filepath.Dir(c.Containerd.Address), 0o711, "its containerd", "set containerd.address in the config to that of another containerd"},
	}
}

// lockFolders locks the folders that two shims could share, until unlock or the end of
// the process. It locks the folders and not files in them: a file system that is full
// or read-only must not keep a shim from starting again.
func lockFolders(c config.Config) (unlock func(), err error) {
	var locked []*os.File
	unlock = func() {
		for _, f := range locked {
			f.Close()
		}
	}
	for _, s := range ownFolders(c) {
		f, err := s.open()
		if err != nil {
			unlock()
			return nil, err
		}
		if same(f, locked) { // two fields may have one folder
			f.Close()
			continue
		}
		locked = append(locked, f)
		if err := lockFile(f); err != nil {
			err = s.refusal(f, err)
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

func (s ownFolder) open() (*os.File, error) {
	if err := os.MkdirAll(s.path, s.mode); err != nil {
		return nil, fmt.Errorf("lock the folder %s: %w", s.path, err)
	}
	f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("lock the folder %s: %w", s.path, err)
	}
	return f, nil
}

// refusal is the error of a folder that could not be locked.
func (s ownFolder) refusal(f *os.File, err error) error {
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("lock the folder %s: %w", s.path, err)
	}
	other := "another shim"
	if pid := holder(f); pid != 0 {
		other += fmt.Sprintf(" (process %d)", pid)
	}
	return fmt.Errorf("lock the folder %s: %s keeps %s there; stop that shim, or %s", s.path, other, s.what, s.remedy)
}

func same(f *os.File, all []*os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	for _, other := range all {
		if its, err := other.Stat(); err == nil && os.SameFile(info, its) {
			return true
		}
	}
	return false
}

// lockFile takes an exclusive lock, which ends with the process.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// holder returns the process that has locked a file, and 0 if the kernel does not
// report it: the process may be in another PID namespace, and some file systems
// number their devices differently in the list of locks.
func holder(f *os.File) int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	return holderIn(string(text), file)
}

// holderIn finds the holder of a file, MAJOR:MINOR:INODE, in the kernel's list of locks.
func holderIn(locks, file string) int {
	for line := range strings.Lines(locks) {
		// 1: FLOCK  ADVISORY  WRITE 612 fe:01:131 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
