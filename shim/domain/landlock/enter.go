package landlock

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// Enter limits the calling process, whose first argument is a path that [Link] returned, to the files that
// QEMU may use, and executes QEMU with the other arguments. It returns only if it fails.
func Enter(args, env []string) error {
	runtime.LockOSThread() // the limits are this thread's, and the executed program's
	qemu, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(args[0]), target))
	if err != nil {
		return fmt.Errorf("find QEMU: %w", err)
	}
	own, err := vmRules(args, env)
	if err != nil {
		return err
	}
	if err := restrict(append(nodeRules(qemu), own...)); err != nil {
		return err
	}
	//nolint:gosec // root wrote the link, and libvirtd the arguments
	return fmt.Errorf("start QEMU: %w", syscall.Exec(qemu, slices.Concat([]string{qemu}, args[1:]), env))
}
