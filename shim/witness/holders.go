package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// File identifies what a process has open, by whichever path or mount: a block device by its number, a regular
// file by its file system's device number and its inode.
type File struct {
	Block         bool
	Device, Inode uint64
}

// Device returns the block device with a number, [unix.Stat_t]'s Rdev.
func Device(number uint64) File { return File{Block: true, Device: number} }

// FileOf returns what an open file is, and false for anything but a block device or a regular file.
func FileOf(f *os.File) (File, bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return File{}, false, os.NewSyscallError("fstat", err)
	}
	file, ok := identify(&st)
	return file, ok, nil
}

func identify(st *unix.Stat_t) (File, bool) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return Device(st.Rdev), true
	case unix.S_IFREG:
		return File{Device: st.Dev, Inode: st.Ino}, true
	}
	return File{}, false
}

// Holder is a process that has a disk open.
type Holder struct {
	Process
	// Writes is true if the process can write to the disk.
	Writes bool
}

// String names the process, and the VM that it is of.
func (h Holder) String() string {
	text := fmt.Sprintf("process %d", h.PID)
	if h.Domain != "" {
		text += " of domain " + h.Domain
	}
	if h.Container != "" {
		text += ", container " + h.Container
	}
	return text
}

// Holders returns the processes of VMs' users, and the QEMUs of all users, that have a block device or a file open.
// Strangers are among them: the kernel says what a process has open.
func (s *Scan) Holders(f File) ([]Holder, error) {
	all, err := s.files()
	return all[f], err
}

// Remotes returns the QEMUs that have a disk open over the network for which is returns true. What strangers say of
// themselves does not count.
func (s *Scan) Remotes(is func(RemoteDisk) bool) []Holder {
	var found []Holder
	for _, p := range s.all() {
		holds, writes := false, false
		for _, d := range p.Remote {
			if is(d) {
				holds, writes = true, writes || !d.ReadOnly
			}
		}
		if holds {
			found = append(found, Holder{p, writes})
		}
	}
	return found
}

func (s *Scan) all() []Process {
	return append(slices.Clip(s.processes), s.others...)
}

// open reads which process has which file open.
func (s *Scan) open() (map[File][]Holder, error) {
	held := map[File][]Holder{}
	for _, p := range s.all() {
		files, err := opened(p.PID)
		if err != nil {
			return nil, fmt.Errorf("list the files of process %d: %w", p.PID, err)
		}
		for f, writes := range files {
			held[f] = append(held[f], Holder{p, writes})
		}
	}
	return held, nil
}

// opened returns the block devices and the files that a process has open, and whether it can write to them. A process
// whose first thread has ended shows its files with the other threads.
func opened(pid int) (map[File]bool, error) {
	tasks, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*"))
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		files, err := os.ReadDir(filepath.Join(task, "fd"))
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		held := map[File]bool{}
		for _, entry := range files {
			st, err := cachedStat(filepath.Join(task, "fd", entry.Name()))
			if err != nil {
				continue // closed meanwhile
			}
			if f, ok := identify(&st); ok {
				held[f] = held[f] || !readOnly(filepath.Join(task, "fdinfo", entry.Name()))
			}
		}
		if len(files) > 0 {
			return held, nil // threads share their files
		}
	}
	return nil, nil
}

// cachedStat describes an open file by what the kernel knows of it. The server of a network's file system, which may be
// away, is not asked.
func cachedStat(path string) (st unix.Stat_t, err error) {
	var x unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &x); err != nil {
		return st, err
	}
	st.Mode, st.Ino = uint32(x.Mode), x.Ino
	st.Dev, st.Rdev = unix.Mkdev(x.Dev_major, x.Dev_minor), unix.Mkdev(x.Rdev_major, x.Rdev_minor)
	return st, nil
}

// readOnly reports whether a descriptor was opened for reading alone. One that cannot be read counts as one
// for writing.
func readOnly(path string) bool {
	text, err := head(path, maxStatus)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(value), 8, 64)
			return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
		}
	}
	return false
}
