package supervisor

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shadow becomes the program that args name, which sees the files below dir in place of those of the
// same names below /proc/sys: what it sets there, the machine keeps as it was. The mounts for that are in
// a mount namespace of the program's own, which takes part in all other mounts of the node; in the
// node's own, what covers a part of /proc would keep pods with a user namespace from mounting theirs.
func Shadow(dir string, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	// The namespace is this thread's, and the only thread left after exec is this one.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts below /proc apart: %w", err)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return mount(path, filepath.Join("/proc/sys", name), "", unix.MS_BIND)
	})
	if err != nil {
		return fmt.Errorf("cover sysctls: %w", err)
	}
	return fmt.Errorf("run %s: %w", program, syscall.Exec(program, args, os.Environ()))
}
