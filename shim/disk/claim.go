package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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

// held are the locked devices of machines.
type held struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (c claim) create(ctx context.Context, k Disk) error {
	f, err := c.open(k, k.Content.Image != nil)
	if err != nil {
		return err
	}
	defer f.Close()
	if k.Content.Image != nil {
		if err := c.write(ctx, k, f); err != nil {
			return err
		}
	}
	if k.Block {
		return nil
	}
	return c.grow(k, f)
}

// write makes the volume a copy of its origin, unless it is a disk already.
func (c claim) write(ctx context.Context, k Disk, volume *os.File) error {
	image := k.image()
	if is, err := persist.IsDisk(volume); err != nil || is {
		return err
	}
	if err := room(k, volume, image.Content); err != nil {
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

// room refuses to begin what a folder's file system can't take.
func room(k Disk, volume *os.File, needs int64) error {
	if k.Block {
		return nil
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(volume.Fd()), &fs), unix.Fstat(int(volume.Fd()), &st)); err != nil {
		return fmt.Errorf("ask for the volume's room: %w", err)
	}
	if free := int64(fs.Bavail)*fs.Frsize + st.Blocks*512; needs > free {
		return fmt.Errorf("%w: the disk may take %d bytes, and the volume has %d: use a larger one", syscall.ENOSPC, needs, free)
	}
	return nil
}

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
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), unlock()); err != nil {
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
		return nil, fmt.Errorf("%w: there is no %s in it: put one there, or have the disk of an image "+
			"written to it (annotation nodevirt.io/disk-origin)", ErrVolume, imageFile)
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
	unlock, err := persist.Lock(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !k.Block { // QEMU locks it in its way, through the same descriptor
		return map[string][]*os.File{k.group("top"): {f}}, unlock()
	}
	c.hold(k, f)
	return nil, c.makeNode(k, f)
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
	c.hold(k, nil)
	if err := os.Remove(c.node(k)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// recover locks the device of a machine that runs again.
func (c claim) recover(k Disk) error {
	if !k.Block {
		return nil
	}
	f, err := openDevice(k.Host)
	if err != nil {
		return err
	}
	if _, err := persist.Lock(f); err != nil {
		return errors.Join(err, f.Close())
	}
	c.hold(k, f)
	return nil
}

// hold keeps a locked device, or with nil lets go of it.
func (c claim) hold(k Disk, f *os.File) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	key := k.VM.ID + "." + k.Name
	if old := c.held.files[key]; old != nil {
		old.Close()
	}
	delete(c.held.files, key)
	if f != nil {
		c.held.files[key] = f
	}
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

func (c claim) node(k Disk) string { return c.path(k, "claim-"+k.Name) }
