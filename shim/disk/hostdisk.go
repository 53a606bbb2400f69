package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
)

// hostDisk is a file in a folder of the node, which the node creates if it must. It is
// attached as the disk.img of a PVC is.
type hostDisk struct{ filePVC }

func (h hostDisk) create(_ context.Context, k Disk) error {
	if err := checkSubPath(k.Host); err != nil {
		return err
	}
	f, err := h.open(k, k.Size > 0 && !k.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	if k.ReadOnly {
		return lockedNow(k, f)
	}
	// The lock ends here. But a kubelet repeats this call, and not a start.
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	return errors.Join(h.extend(k, f), unlock())
}

// extend gives a new file its size. A file with content keeps its own.
func (hostDisk) extend(k Disk, f *os.File) error {
	size, err := persist.Size(f)
	if err != nil || size > 0 || k.Size == 0 {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("read the folder's free space: %w", err)
	}
	if free := int64(st.Bavail) * st.Frsize; k.Size > free {
		return fmt.Errorf("%w: the disk may take %d bytes, and the folder has %d free: use a smaller capacity",
			syscall.ENOSPC, k.Size, free)
	}
	if err := f.Truncate(k.Size); err != nil {
		return fmt.Errorf("create the disk: %w", err)
	}
	return nil
}
