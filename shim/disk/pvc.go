package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// ErrVolume says that a volume can't be the disk that its pod wants it to be.
var ErrVolume = errors.New("unusable volume")

// claim is a volume of the pod's: a block device, or disk.img in a folder. One with an
// origin becomes its copy first. It outlives the container, and is nobody else's while
// the container's machine runs: QEMU locks a file; a device, which QEMU gets by a node
// of the machine's own, is locked here.
type claim struct{ *Disks }

// imageFile is the disk in a folder, under KubeVirt's name.
const imageFile = "disk.img"

func (c claim) create(ctx context.Context, k Disk) error {
	if err := c.room(k); err != nil {
		return err
	}
	f, err := c.open(k, k.Content.Image != nil)
	if err != nil {
		return err
	}
	defer f.Close()
	if k.Block { // before any lock, which a machine that has it would feel
		if err := c.device(k, f, c.taken.free); err != nil {
			return err
		}
	}
	if k.Content.Image != nil {
		if err := c.write(ctx, k, f); err != nil {
			return err
		}
	}
	// Nothing is kept of the lock until the start; but who comes too early should try again, which
	// a kubelet does with this call, and not with a start.
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	if !k.Block {
		err = c.grow(k, f)
	}
	return errors.Join(err, unlock())
}

// write makes the volume a copy of its origin, unless it is a disk already.
func (c claim) write(ctx context.Context, k Disk, volume *os.File) error {
	image := k.image()
	if is, _, err := persist.Look(volume); err != nil || is {
		return err
	}
	from, err := c.Unpacker.Open(ctx, image, image.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	key := sha256.Sum256([]byte(image.ImageID + image.Path))
	err = persist.Write(ctx, volume, persist.Source{
		QemuImg: c.QemuImg, UID: k.VM.Domain.UID,
		File: from, Format: string(image.Format), Size: image.VirtualSize,
		Key: hex.EncodeToString(key[:]), Scratch: c.Folder(k.VM.ID),
	}, func(done float64) { k.tell(expand.Progress{Done: done}) })
	if errors.Is(err, persist.ErrUnfit) {
		return fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if err != nil {
		return fmt.Errorf("write the disk of image %s: %w", image.Image, err)
	}
	return nil
}

// room refuses what a folder's file system can't take, before anything is written to it.
// Of a device package persist knows its size.
func (c claim) room(k Disk) error {
	if k.Block || k.Content.Image == nil {
		return nil
	}
	var taken int64
	switch f, err := c.open(k, false); {
	case err == nil:
		defer f.Close()
		if is, _, err := persist.Look(f); err != nil || is {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("ask for the volume's room: %w", err)
		}
		taken = st.Blocks * 512
	case !errors.Is(err, errNoFile):
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(k.Host, &fs); err != nil {
		return fmt.Errorf("ask for the volume's room: %w", err)
	}
	if all := int64(fs.Blocks) * fs.Frsize; k.image().VirtualSize > all {
		return fmt.Errorf("%w: %w: the disk has %d bytes, and the volume's file system %d: use a larger one",
			ErrVolume, persist.ErrUnfit, k.image().VirtualSize, all)
	}
	if free := int64(fs.Bavail)*fs.Frsize + taken; k.image().Content > free {
		return fmt.Errorf("%w: the disk may take %d bytes, and the volume has %d free: use a larger one",
			syscall.ENOSPC, k.image().Content, free)
	}
	return nil
}

// errNoFile says that a folder holds no disk.
var errNoFile = errors.New("there is no " + imageFile + " in it: put one there, or have the disk of an image " +
	"written to it (annotation nodevirt.io/disk-origin)")

// grow makes a file as large as its volume, if the volume is one: a folder below
// others on their file system may not take all of it.
func (c claim) grow(k Disk, f *os.File) error {
	var folder, above, file unix.Stat_t
	var fs unix.Statfs_t
	err := errors.Join(unix.Stat(k.Host, &folder), unix.Stat(filepath.Dir(k.Host), &above), unix.Fstat(int(f.Fd()), &file),
		unix.Fstatfs(int(f.Fd()), &fs))
	if err != nil {
		return fmt.Errorf("ask for the volume's size: %w", err)
	}
	if folder.Dev == above.Dev {
		return nil
	}
	const mebibyte = 1 << 20
	// Some stays free, as the file system's own records grow with the file.
	size := (int64(fs.Bavail)*fs.Frsize + file.Blocks*512) / 100 * 95 / mebibyte * mebibyte
	if size <= file.Size {
		return nil
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("grow the disk to the volume's size: %w", err)
	}
	return nil
}

// open opens the volume. Others may write to it too, in a folder: what is no file is refused.
func (c claim) open(k Disk, create bool) (*os.File, error) {
	if k.Block {
		return openDevice(k.Host)
	}
	root, err := os.OpenRoot(k.Host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	defer root.Close()
	info, err := root.Lstat(imageFile)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s in it is no file", ErrVolume, imageFile)
	}
	flags := os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	if create {
		flags |= os.O_CREATE
	}
	f, err := root.OpenFile(imageFile, flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrVolume, errNoFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s in it is no file", ErrVolume, imageFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func openDevice(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice {
		err = fmt.Errorf("%w: it is no block device", ErrVolume)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (c claim) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := c.open(k, false)
	if err != nil {
		return nil, err
	}
	if !k.Block { // QEMU locks it in its way, through the same descriptor
		return map[string][]*os.File{k.group("top"): {f}}, lockedNow(f)
	}
	defer f.Close()
	if err := c.device(k, f, c.taken.take); err != nil {
		return nil, err
	}
	if err := lockedNow(f); err != nil {
		return nil, err
	}
	return nil, c.makeNode(k, f)
}

// lockedNow is an error if somebody has the volume at this moment.
func lockedNow(f *os.File) error {
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	return unlock()
}

// device asks for a device by its number, whichever of its nodes a pod has.
func (c claim) device(k Disk, f *os.File, ask func(Disk, string) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look at the volume: %w", err)
	}
	if err := ask(k, fmt.Sprintf("device %d", st.Rdev)); err != nil {
		return fmt.Errorf("the volume is %w", err)
	}
	return nil
}

// makeNode makes the node by which QEMU, which has no right on the volume's own,
// opens a device.
func (c claim) makeNode(k Disk, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look at the volume: %w", err)
	}
	path := c.node(k)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		return fmt.Errorf("make the VM's own node of the volume: %w", err)
	}
	return os.Chown(path, int(k.VM.Domain.UID), int(k.VM.Domain.GID))
}

func (c claim) detach(_ context.Context, k Disk) error {
	if !k.Block {
		return nil
	}
	c.taken.drop(k)
	if err := os.Remove(c.node(k)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// recover takes the device for a machine that may run.
func (c claim) recover(k Disk) error {
	if !k.Block {
		return nil
	}
	f, err := openDevice(k.Host)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.device(k, f, c.taken.take)
}

func (claim) remove(context.Context, Disk) error { return nil }

func (c claim) describe(k Disk) domain.Disk {
	layer := domain.Layer{Format: string(imageunpack.Raw), ReadOnly: k.ReadOnly}
	if k.Block {
		layer.Path, layer.Block = c.node(k), true
	} else {
		layer.Path, layer.FDGroup = filepath.Join(k.Host, imageFile), k.group("top")
	}
	return domain.Disk{Layers: []domain.Layer{layer}}
}

func (claim) writable(Disk) string { return "" }

// node is in /dev, since other file systems may be mounted without device nodes.
func (claim) node(k Disk) string { return filepath.Join("/dev", "nodevirt-"+k.VM.ID+"-"+k.Name) }
