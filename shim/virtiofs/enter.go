package virtiofs

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Enter turns the calling process, which has the namespaces and descriptors of a virtiofsd, into the
// virtiofsd that shares the folder. It returns only if that fails.
func Enter(folder, program string) error {
	if err := unix.MoveMount(mountFD, "", unix.AT_FDCWD, folder, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", folder, err)
	}
	if err := limit(); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	pidFile := os.NewFile(pidFD, "pid")
	if _, err := fmt.Fprintln(pidFile, os.Getpid()); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	unix.CloseOnExec(pidFD)
	unix.CloseOnExec(mountFD)
	stderr, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, fd := range []int{1, 2} { // a guest could make virtiofsd's log grow
		if err := unix.Dup2(int(null.Fd()), fd); err != nil {
			return err
		}
	}
	err = syscall.Exec(program, arguments(program, folder), []string{"LC_ALL=C"})
	_ = unix.Dup2(stderr, 2)
	return fmt.Errorf("start %s: %w", program, err)
}

// limit forbids core dumps, which would have the guest's files, and allows as many open files as the
// shim may have.
func limit() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	files.Cur = files.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
