package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// madeMark is the extended attribute of a file that this package made the disk of a
// volume. Only root can set it. The file keeps it on other nodes, too.
const madeMark = "trusted.nodevirt.made"

// markMade marks a file as made here. A file system without such attributes is no
// error: its disks keep the size that they are made with.
func markMade(f *os.File) error {
	err := unix.Fsetxattr(int(f.Fd()), madeMark, []byte("1"), 0)
	if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mark the volume's disk: %w", err)
	}
	return nil
}

func isMade(f *os.File) bool {
	_, err := unix.Fgetxattr(int(f.Fd()), madeMark, make([]byte, 1))
	return err == nil
}

// growDisk makes the file of a folder as large as the folder's file system, if the
// folder is the root of that: other folders share their space, and a file there gets
// the size in bytes that is wanted, as far as there is space.
func growDisk(folder string, f *os.File, wanted int64) error {
	root, err := isRoot(folder)
	if err != nil || !root && wanted == 0 {
		return err
	}
	now, size, err := roomOf(f)
	if err != nil {
		return err
	}
	if !root {
		size = min(size, wanted)
	}
	if size <= now {
		if now == 0 {
			return fmt.Errorf("create the disk: %w", unix.ENOSPC)
		}
		return nil
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("grow the disk to the volume's size: %w", err)
	}
	return nil
}

// mebibyte is what the sizes of files are multiples of.
const mebibyte = 1 << 20

// roomOf returns the size of a file, and the one that its file system has room for. Some stays
// free, as the file system's own records grow with the file.
func roomOf(f *os.File) (now, room int64, err error) {
	var file unix.Stat_t
	var st unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &file), unix.Fstatfs(int(f.Fd()), &st)); err != nil {
		return 0, 0, fmt.Errorf("get the volume's size: %w", err)
	}
	return file.Size, reserved(int64(st.Bavail)*st.Frsize + file.Blocks*512), nil
}

// reserved returns how large a file can be in a volume of a size.
func reserved(size int64) int64 { return size / 100 * 95 / mebibyte * mebibyte }

// grower is a kind whose disks grow while their VM runs.
type grower interface {
	// room opens the disk of a volume with a capacity for reading, and returns the size that the
	// disk can have, at least the one that it has.
	room(k Disk, capacity int64) (*os.File, int64, error)
}

// Room opens a disk for reading, and returns how large it can be if its PVC has a capacity in
// bytes: a device as large as it is, and as with KubeVirt a file smaller than the capacity and
// the free space. A file below the root of a file system keeps its size: others share the
// space, and users who may exec into the VM's pod choose the capacity. The caller closes the file.
func (a *Attachments) Room(r record.Container, d vmspec.Disk, capacity int64) (*os.File, int64, error) {
	k := Disk{Disk: d, Content: r.AsStarted().Disks[d.Name], VM: r}
	kind, can := a.kinds.of(k).(grower)
	if !can {
		return nil, 0, fmt.Errorf("%w: disk %q does not grow", ErrVolume, k.Name)
	}
	f, size, err := kind.room(k, capacity)
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	return f, size, k.wrap("measure", err)
}

func (b blockPVC) room(k Disk, _ int64) (*os.File, int64, error) {
	f, _, err := b.devices.open(k.Host, true)
	if err != nil {
		return nil, 0, err
	}
	if k.Content.Length > 0 { // QEMU does not change it
		return f, k.Content.Length, nil
	}
	size, err := persist.Size(f)
	return f, size, err
}

func (p filePVC) room(k Disk, capacity int64) (*os.File, int64, error) {
	k.ReadOnly = true // QEMU extends it
	f, err := p.open(k, false)
	if err != nil {
		return nil, 0, err
	}
	now, room, err := roomOf(f)
	if err != nil {
		return f, 0, err
	}
	root, err := isRoot(k.Host)
	if !root {
		return f, now, err
	}
	return f, max(now, min(room, reserved(capacity))), nil
}

// isRoot reports whether a folder is a mount point that shows the root of its file
// system, and not a folder below that, as the bind mount of a subPath does.
func isRoot(folder string) (bool, error) {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false, fmt.Errorf("find the volume's mount: %w", err)
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, folder, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st); err != nil {
		return false, fmt.Errorf("find the volume's mount: %w", err)
	}
	mounts, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("find the volume's mount: %w", err)
	}
	defer mounts.Close()
	return showsRoot(mounts, st.Mnt_id, folder)
}

// showsRoot looks the mount with an ID up in mountinfo, see proc_pid_mountinfo(5).
func showsRoot(mountinfo io.Reader, id uint64, folder string) (bool, error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && fields[0] == strconv.FormatUint(id, 10) {
			return fields[3] == "/" && unescape(fields[4]) == folder, nil
		}
	}
	return false, lines.Err()
}

// unescape decodes the characters that mountinfo writes as octal numbers.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
