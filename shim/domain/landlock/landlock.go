// Package landlock limits QEMU to the files of its VM, by the kernel's Landlock.
//
// It owns the link that libvirt starts in QEMU's place, the files that every QEMU may use, and the
// kernel's calls. The program behind the link is nodevirt-qemu, which calls [Enter] as the VM's user.
// Package domain lists the files of a VM. libvirt sets QEMU's arguments, user and system call filter.
package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported says that the kernel has no Landlock, or does not use it.
var ErrUnsupported = errors.New("the kernel does not support Landlock")

// Version returns the version of the kernel's Landlock, from 1, or ErrUnsupported.
func Version() (int, error) {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch e {
	case 0:
		return int(v), nil
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return 0, ErrUnsupported
	}
	return 0, fmt.Errorf("ask the kernel for Landlock: %w", e)
}

// rights are the rights to files that a version of Landlock controls.
func rights(version int) uint64 {
	all := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1) // all of version 1
	for _, later := range []struct {
		since int
		right uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	} {
		if version >= later.since {
			all |= later.right
		}
	}
	return all
}

// ofFiles are the rights that a rule for anything but a folder may have.
const ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

// rule gives rights to a file, or to a folder with all that is in it.
type rule struct {
	path   string
	rights uint64
	// optional rules are for paths that not every node has.
	optional bool
}

// restrict takes all rights to files from the calling thread, and from the program that it
// executes, but those of the rules. It has no effect on open files.
func restrict(rules []rule) error {
	version, err := Version()
	if err != nil {
		return err
	}
	handled := rights(version)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	set, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return fmt.Errorf("create a rule set of Landlock: %w", e)
	}
	defer unix.Close(int(set))
	for _, r := range rules {
		err := r.add(int(set), handled)
		if r.optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("let QEMU use %s: %w", r.path, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); e != 0 {
		return fmt.Errorf("apply the rule set of Landlock: %w", e)
	}
	return nil
}

func (r rule) add(set int, handled uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	allowed := r.rights & handled
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= ofFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed, Parent_fd: int32(fd)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
