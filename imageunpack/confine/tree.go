package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// enterTree makes root the file tree of this process, which has its own mount namespace and is to execute
// program.
func enterTree(root, program string, more func(root string) error) error {
	var errs []error
	do := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	do("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	do("mount tmpfs", unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"))
	for _, dir := range []string{"etc", "proc", "dev"} {
		do("make folder", os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, dir := range []string{"usr", "lib", "lib64"} { // the program and its libraries
		do("bind /"+dir, bindReadOnly(root, dir))
	}
	if _, err := os.Lstat(filepath.Join(root, program)); err != nil { // an administrator's own
		do("make folder", os.MkdirAll(filepath.Join(root, filepath.Dir(program)), 0o755))
		do("bind the program", bindReadOnly(root, strings.TrimPrefix(program, "/")))
	}
	do("bind ld.so.cache", bindReadOnly(root, "etc/ld.so.cache"))
	do("bind null", bindReadOnly(root, "dev/null"))
	// The process sees itself there, and no other one.
	do("mount proc", unix.Mount("proc", filepath.Join(root, "proc"), "proc",
		unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible,subset=pid"))
	if more != nil && len(errs) == 0 {
		errs = append(errs, more(root))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	do("enter", unix.Chdir(root))
	do("enter", unix.PivotRoot(".", "."))
	do("unmount the node's files", unix.Unmount(".", unix.MNT_DETACH))
	do("enter", unix.Chdir("/"))
	return errors.Join(errs...)
}

// bindReadOnly mounts a file or folder of the node in the tree, read-only.
func bindReadOnly(root, name string) error {
	from, to := "/"+name, filepath.Join(root, name)
	info, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not every distribution has a /lib64
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case info.IsDir():
		err = os.Mkdir(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID)
	if !strings.HasPrefix(name, "dev/") {
		flags |= unix.MS_NODEV
	}
	return unix.Mount("", to, "", flags, "")
}
