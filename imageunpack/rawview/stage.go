package rawview

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/supervise"
)

// The descriptors that the process inherits.
const (
	overlayFD = 3
	baseFD    = 4
	deviceFD  = 5
)

// shown is the path of the raw file in the process's own file tree.
const shown = "/dev/disk"

// stage is the input of [Enter]: the work between the start of the process and qemu-storage-daemon.
type stage struct {
	UID, GID uint32
	// Override lets the process open files of any owner, for a base that only its owner can read. Its
	// file tree holds no other files.
	Override bool
	Program  string
	Args     []string
}

func newStage(view View, base *os.File, program string) (stage, error) {
	info, err := base.Stat()
	if err != nil {
		return stage{}, err
	}
	args, err := arguments(view)
	return stage{
		UID: view.UID, GID: view.GID, Override: info.Mode().Perm()&0o004 == 0,
		Program: program, Args: append([]string{"qemu-storage-daemon"}, args...),
	}, err
}

// arguments returns qemu-storage-daemon's arguments. They name each layer's format, so that none is
// probed. With write-through, qemu-storage-daemon holds no written data itself: after it was killed
// and started again, the raw file has the same content, on which its users rely.
func arguments(view View) ([]string, error) {
	type object = map[string]any
	file := func(fd int) object {
		return object{"driver": "file", "filename": fmt.Sprintf("/proc/self/fd/%d", fd)}
	}
	top := file(overlayFD)
	top["discard"] = "unmap"
	if !view.Durable {
		top["cache"] = object{"no-flush": true}
	}
	disk, err := json.Marshal(object{
		"driver": "qcow2", "node-name": "disk", "discard": "unmap", "file": top,
		"backing": object{"driver": view.BaseFormat, "read-only": true, "file": object{
			"driver": "file", "read-only": true, "filename": file(baseFD)["filename"],
		}},
	})
	if err != nil {
		return nil, err
	}
	export, err := json.Marshal(object{
		"type": "fuse", "id": "disk", "node-name": "disk", "writable": true, "writethrough": true,
		// For libfuse this name means a descriptor whose file system is mounted already.
		"mountpoint": fmt.Sprintf("/dev/fd/%d", deviceFD),
	})
	return []string{"--blockdev", string(disk), "--export", string(export)}, err
}

// Enter turns the calling process into the process of a view, whose folder is dir. It returns only if
// that fails.
func Enter(dir string) error {
	runtime.LockOSThread()
	var s stage
	text, err := os.ReadFile(filepath.Join(dir, stageName))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = supervise.WritePID(filepath.Join(dir, pidName))
	}
	if err != nil {
		return fmt.Errorf("start the view in %s: %w", dir, err)
	}
	if err := makeTree(filepath.Join(dir, rootName), s); err != nil {
		return fmt.Errorf("create the file tree of a view: %w", err)
	}
	for _, fd := range []uintptr{overlayFD, baseFD, deviceFD} {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep descriptor %d: %w", fd, err)
		}
	}
	if err := dropRights(s); err != nil {
		return fmt.Errorf("give up root: %w", err)
	}
	return fmt.Errorf("start %s: %w", s.Program, syscall.Exec(s.Program, s.Args, []string{"LC_ALL=C"}))
}

// makeTree makes root the file tree of this process, which has its own mount namespace.
func makeTree(root string, s stage) error {
	var errs []error
	do := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	do("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	do("mount tmpfs", unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"))
	for _, dir := range []string{"etc", "proc", "dev", "dev/fd"} {
		do("make folder", os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, dir := range []string{"usr", "lib", "lib64"} { // the program and its libraries
		do("bind /"+dir, bindReadOnly(root, dir))
	}
	do("bind ld.so.cache", bindReadOnly(root, "etc/ld.so.cache"))
	do("bind null", bindReadOnly(root, "dev/null"))
	do("mount proc", unix.Mount("proc", filepath.Join(root, "proc"), "proc",
		unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	for _, name := range []string{fmt.Sprintf("dev/fd/%d", deviceFD), shown} {
		do("make file", os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	do("mount the disk", unix.Mount("nodevirt", filepath.Join(root, shown), "fuse", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		fmt.Sprintf("fd=%d,rootmode=100000,user_id=%d,group_id=%d,allow_other,default_permissions", deviceFD, s.UID, s.GID)))
	if len(errs) > 0 {
		return errors.Join(errs...)
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

// dropRights sets the VM's user and drops all capabilities, or all but CAP_DAC_OVERRIDE.
func dropRights(s stage) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if s.Override && c == unix.CAP_DAC_OVERRIDE {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if s.Override {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	// Only this thread needs it: Exec ends all others.
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(s.GID), uintptr(s.GID), uintptr(s.GID)); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(s.UID), uintptr(s.UID), uintptr(s.UID)); e != 0 {
		return e
	}
	if !s.Override {
		return nil
	}
	set := unix.CapUserData{
		Effective: 1 << unix.CAP_DAC_OVERRIDE, Permitted: 1 << unix.CAP_DAC_OVERRIDE, Inheritable: 1 << unix.CAP_DAC_OVERRIDE,
	}
	both := [2]unix.CapUserData{set}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &both[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_DAC_OVERRIDE, 0, 0)
}
