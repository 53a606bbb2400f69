package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// ErrVolume says that a volume can't be the disk that its pod asks for.
var ErrVolume = errdefs.ErrInvalidArgument.WithMessage("unusable volume")

// pvc are the ways to attach a PVC: a block device, or the file disk.img in a folder.
// A PVC outlives its container, and one VM at a time uses it, or several that all
// read it only: QEMU locks a file; a device, which QEMU opens by the VM's own node, is
// reserved here.
//
// A guest that comes from another node has the PVC there. Until its hand-over this node writes
// nothing to the PVC, and holds no lock of a file: QEMU takes the lock when the source's QEMU
// has released it. The controller counts both nodes as one user of the PVC.
type pvc struct {
	block blockPVC
	file  filePVC
}

func newPVC(o Options, reserved *reservations) pvc {
	origin := origin{images: o.Unpacker, persist: o.persist, folder: o.Folder, turns: o.Expander.Turns(), groups: o.Groups}
	return pvc{
		block: blockPVC{devices: o.devices, reserved: reserved, origin: origin},
		file:  filePVC{origin: origin},
	}
}

func (p pvc) kind(k Disk) kind {
	if k.Block {
		return p.block
	}
	return p.file
}

// open opens the device or the file, which it can create.
func (p pvc) open(k Disk, create bool) (*os.File, error) {
	if !k.Block {
		return p.file.open(k, create)
	}
	f, _, err := p.block.devices.open(k.Host, k.ReadOnly)
	return f, err
}

// pvcTakesTime reports whether the PVC becomes the copy of an image first.
func pvcTakesTime(k Disk) bool { return k.Origin != "" }

// origin writes images to volumes.
type origin struct {
	images  imageOpener
	persist persister
	folder  func(id string) string
	turns   *expand.Turns
	groups  groups
}

// write makes a volume a copy of the disk's origin, if it has one, unless the
// volume is a disk already.
func (o origin) write(ctx context.Context, k Disk, volume *os.File) error {
	if k.Content.Image == nil {
		return nil
	}
	image := k.image()
	if is, _, err := persist.Look(volume); err != nil || is {
		return err
	}
	from, err := o.images.Open(ctx, image, image.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	progress := expand.Progress{}
	turn := func(ctx context.Context) (func(), error) {
		end, err := o.turns.Take(ctx, k.podNamespace(), func() { k.progress(expand.Progress{Waiting: true, Done: progress.Done}) })
		if err == nil {
			k.progress(progress)
		}
		return end, err
	}
	key := sha256.Sum256([]byte(image.ImageID + image.Path))
	err = o.persist.write(ctx, volume, persist.Source{
		UID: k.VM.Domain.UID, Started: joining(o.groups, k), File: from, Format: string(image.Format), Size: image.VirtualSize,
		Key: hex.EncodeToString(key[:]), Scratch: o.folder(k.VM.ID), Turn: turn,
	}, func(done float64) { progress.Done = done; k.progress(progress) })
	if errors.Is(err, persist.ErrUnfit) {
		return fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if err != nil {
		return fmt.Errorf("write the disk of image %s: %w", image.Image, err)
	}
	return nil
}

// lockedNow returns an error if another process uses the volume at this moment; of a
// volume that the VM reads only, or shares, and of a file that the guest still has on another
// node, if another process writes an image to it.
func lockedNow(k Disk, f *os.File) error {
	if k.use() != alone || k.comes() && !k.Block {
		return persist.CheckWriter(f)
	}
	unlock, err := persist.Lock(f)
	if err != nil {
		return err
	}
	return unlock()
}

// describePVC returns the one layer of a PVC.
func describePVC(k Disk, l domain.Layer) domain.Disk {
	l.Format, l.ReadOnly = string(imageunpack.Raw), k.ReadOnly
	return domain.Disk{Layers: []domain.Layer{l}}
}
