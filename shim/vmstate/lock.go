package vmstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock locks what f is, until the last descriptor that came of f is closed.
func lock(f *os.File) error { return flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func flock(fd, how int) error {
	err := unix.Flock(fd, how)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	if err != nil {
		return fmt.Errorf("lock persistent state: %w", err)
	}
	return nil
}

// Lock locks what a process has open of the state in a volume's folder, for as long as it has that
// open. A process that has ended has nothing open.
func Lock(folder string, pid int) error { return ofProcess(folder, pid, unix.LOCK_EX|unix.LOCK_NB) }

// Unlock lets other processes lock what a process has open of the state in a volume's folder.
func Unlock(folder string, pid int) error { return ofProcess(folder, pid, unix.LOCK_UN) }

// ofProcess changes the locks of a process by its own descriptors: those that the shim would open
// have other locks.
func ofProcess(folder string, pid, how int) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer root.Close()
	locked := map[string]fs.FileInfo{}
	for _, name := range []string{variables, tpmLock} {
		info, err := root.Lstat(name)
		if err == nil {
			locked[name] = info
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if ended(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for locks of process %d: %w", pid, err)
	}
	for _, e := range entries {
		path, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		want, is := locked[filepath.Base(path)]
		if !is {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil || !os.SameFile(info, want) {
			continue
		}
		if err := ofDescriptor(pid, e.Name(), how); err != nil {
			return err
		}
	}
	return nil
}

// ofDescriptor changes the lock of a process's descriptor.
func ofDescriptor(pid int, name string, how int) error {
	n, err := strconv.Atoi(name)
	if err != nil {
		return fmt.Errorf("descriptor of process %d: %w", pid, err)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if ended(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reach process %d: %w", pid, err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, n, 0)
	if ended(err) || errors.Is(err, syscall.EBADF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reach the locks of process %d: %w; the shim needs CAP_SYS_PTRACE", pid, err)
	}
	defer unix.Close(fd)
	return flock(fd, how)
}

// ended reports whether an error says that a process does not exist any more.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
