package virtiofs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/sys"
	"golang.org/x/sys/unix"
)

// openMount returns a mount of a folder that is in no file tree, and the ids for the user namespace of
// those who use it: private ones if the folder's file system has ID-mapped mounts, else one. A folder
// below, on which something is mounted, is empty in it.
func openMount(f Folder, private, one syscall.SysProcIDMap) (*os.File, syscall.SysProcIDMap, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, f.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, one, os.NewSyscallError("open_tree", err)
	}
	tree := os.NewFile(uintptr(fd), f.Path)
	ids, err := prepare(fd, f.ReadOnly, private, one)
	if err != nil {
		tree.Close()
		return nil, one, err
	}
	return tree, ids, nil
}

func prepare(fd int, readOnly bool, private, one syscall.SysProcIDMap) (syscall.SysProcIDMap, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return one, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return one, unix.ENOTDIR
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return one, os.NewSyscallError("mount_setattr", err)
	}
	err := mapIDs(fd, private)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return one, nil // the file system has no ID-mapped mounts
	}
	return private, err
}

// mapIDs makes owners in a mount those of a user namespace with these ids.
func mapIDs(fd int, ids syscall.SysProcIDMap) error {
	text := fmt.Sprintf("%d:%d:%d", ids.ContainerID, ids.HostID, ids.Size)
	return sys.UnshareAfterEnterUserns(text, text, 0, func(pid int) error {
		namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		if err != nil {
			return err
		}
		defer namespace.Close()
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
		return os.NewSyscallError("mount_setattr", unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr))
	})
}
