package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// filePVC is a PVC that is a folder with the file disk.img, as in KubeVirt.
type filePVC struct {
	passive
	origin origin
}

const imageFile = "disk.img"

// The errors for a folder that holds no disk.
var (
	errNoFile = errors.New(imageFile + " is missing in it: create it, or have the disk of an image " +
		"written to it (annotation nodevirt.io/disk-origin)")
	errNoHostDisk = errors.New("the file is missing in it: create it, or use type DiskOrCreate")
)

// file returns the name of the disk in its folder, and the error if it is missing.
func (k Disk) file() (string, error) {
	if k.File != "" {
		return k.File, errNoHostDisk
	}
	return imageFile, errNoFile
}

func (filePVC) takesTime(k Disk) bool { return pvcTakesTime(k) }

func (p filePVC) create(ctx context.Context, k Disk) error {
	if err := checkSubPath(k.Host); err != nil {
		return err
	}
	if k.comes() {
		return p.present(k)
	}
	if err := p.fits(k); err != nil {
		return err
	}
	f, err := p.open(k, k.Content.Image != nil || k.Size > 0 || k.Copied)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unheld(k, f); err != nil {
		return err
	}
	made, err := p.willMake(k, f)
	if err != nil {
		return err
	}
	if err := p.origin.write(ctx, k, f); err != nil {
		return err
	}
	if k.ReadOnly || k.Shareable && !made {
		return lockedNow(k, f)
	}
	// The lock ends here. But a kubelet repeats this call, and not a start.
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	if made || isMade(f) {
		if err = growDisk(k.Host, f, k.Size); err == nil {
			err = allocate(k, f)
		}
	}
	return errors.Join(err, unlock())
}

// present returns an error if the disk of a guest that comes is not in the folder.
func (p filePVC) present(k Disk) error {
	f, err := p.open(k, false)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := persist.Size(f)
	if err == nil && size == 0 {
		_, missing := k.file()
		err = fmt.Errorf("%w: the guest's disk is empty here: both nodes must see the same volume: %w", ErrVolume, missing)
	}
	return errors.Join(err, lockedNow(k, f))
}

// willMake reports whether create makes the disk, and marks the file then. A disk that
// exists keeps its size: its owner chose that.
func (filePVC) willMake(k Disk, f *os.File) (bool, error) {
	switch {
	case k.Content.Image != nil:
		if is, _, err := persist.Look(f); err != nil || is {
			return false, err
		}
	case k.Size > 0:
		if info, err := f.Stat(); err != nil || info.Size() > 0 {
			return false, err
		}
	default:
		return false, nil
	}
	return true, markMade(f)
}

// attach opens the file. QEMU locks it through the same descriptor.
func (p filePVC) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := p.open(k, false)
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("top"): {f}}, lockedNow(k, f)
}

func (filePVC) describe(k Disk) domain.Disk {
	name, _ := k.file()
	return describePVC(k, domain.Layer{Path: filepath.Join(k.Host, name), FDGroup: k.group("top")})
}

// open opens the file. Other pods may write to the folder too: anything but a regular
// file is refused.
func (filePVC) open(k Disk, create bool) (*os.File, error) {
	root, err := os.OpenRoot(k.Host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	defer root.Close()
	name, missing := k.file()
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s in it is not a regular file", ErrVolume, name)
	}
	flags := access(k.ReadOnly) | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	if create {
		flags |= os.O_CREATE
	}
	f, err := root.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrVolume, missing)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s in it is not a regular file", ErrVolume, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fits refuses an origin that the folder's file system can't hold, before anything is
// written. Package persist knows the size of a device.
func (p filePVC) fits(k Disk) error {
	if k.Content.Image == nil {
		return nil
	}
	var taken int64
	switch f, err := p.open(k, false); {
	case err == nil:
		defer f.Close()
		if is, _, err := persist.Look(f); err != nil || is {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("read the volume's free space: %w", err)
		}
		taken = st.Blocks * 512
	case !errors.Is(err, errNoFile):
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(k.Host, &st); err != nil {
		return fmt.Errorf("read the volume's free space: %w", err)
	}
	if all := int64(st.Blocks) * st.Frsize; k.image().VirtualSize > all {
		return fmt.Errorf("%w: %w: the disk has %d bytes, and the volume's file system %d: use a larger one",
			ErrVolume, persist.ErrUnfit, k.image().VirtualSize, all)
	}
	if free := int64(st.Bavail)*st.Frsize + taken; k.image().Content > free {
		return fmt.Errorf("%w: the disk may take %d bytes, and the volume has %d free: use a larger one",
			syscall.ENOSPC, k.image().Content, free)
	}
	return nil
}
