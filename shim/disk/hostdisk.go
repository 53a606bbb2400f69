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
	if k.comes() {
		return h.present(k)
	}
	creates := k.Size > 0 && !k.ReadOnly
	if creates {
		if err := h.room(k); err != nil {
			return err
		}
	}
	f, err := h.open(k, creates)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unheld(k, f); err != nil {
		return err
	}
	if k.ReadOnly {
		return lockedNow(k, f)
	}
	// The lock ends here. But a kubelet repeats this call, and not a start.
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	return errors.Join(extend(f, k.Size), unlock())
}

// extend gives a new file its size in bytes. A file with content keeps its own.
func extend(f *os.File, wanted int64) error {
	size, err := persist.Size(f)
	if err != nil || size > 0 {
		return err
	}
	if err := f.Truncate(wanted); err != nil {
		return fmt.Errorf("create the disk: %w", err)
	}
	return nil
}

// room refuses a file that the folder's file system can't hold, before it is created.
func (h hostDisk) room(k Disk) error {
	switch f, err := h.open(k, false); {
	case err == nil:
		defer f.Close()
		if size, err := persist.Size(f); err != nil || size > 0 {
			return err
		}
	case !errors.Is(err, errNoHostDisk):
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(k.Host, &st); err != nil {
		return fmt.Errorf("read the folder's free space: %w", err)
	}
	if free := int64(st.Bavail) * st.Frsize; k.Size > free {
		return fmt.Errorf("%w: the disk may take %d bytes, and the folder has %d free: use a smaller capacity",
			syscall.ENOSPC, k.Size, free)
	}
	return nil
}
