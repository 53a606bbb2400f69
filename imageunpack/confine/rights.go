package confine

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Private reports whether only its owner can read a file, so that a program of another user needs ReadAll.
func Private(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	return info.Mode().Perm()&0o004 == 0, nil
}

// readAll is the capability of ReadAll.
const readAll = unix.CAP_DAC_READ_SEARCH

// dropRights sets the program's user and drops all capabilities, or all but the one of ReadAll.
func (p Program) dropRights() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if p.ReadAll && c == readAll {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if p.ReadAll {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	// Only this thread needs it: the execution ends all others.
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(p.GID), uintptr(p.GID), uintptr(p.GID)); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(p.UID), uintptr(p.UID), uintptr(p.UID)); e != 0 {
		return e
	}
	if !p.ReadAll {
		return nil
	}
	set := unix.CapUserData{Effective: 1 << readAll, Permitted: 1 << readAll, Inheritable: 1 << readAll}
	both := [2]unix.CapUserData{set}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &both[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, readAll, 0, 0)
}
