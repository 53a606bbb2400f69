package disk

import (
	"context"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// ephemeral is a PVC that the VM only reads, below a qcow2 file in the container's
// folder that takes the guest's writes. Many VMs can share such a PVC.
type ephemeral struct {
	passive
	pvc      pvc
	overlays volumeOverlayMaker
	files    folders
}

// below returns the disk as a PVC that the VM reads, and the PVC's own kind.
func (e ephemeral) below(k Disk) (Disk, kind) {
	k.ReadOnly = true
	return k, e.pvc.kind(k)
}

func (e ephemeral) create(ctx context.Context, k Disk) error {
	below, as := e.below(k)
	if err := as.create(ctx, below); err != nil {
		return err
	}
	f, err := e.pvc.open(below, false)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := persist.Size(f)
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("%w: it is empty, and an ephemeral disk only reads it", ErrVolume)
	}
	return e.overlays.VolumeOverlay(size, e.writable(k))
}

func (e ephemeral) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	below, as := e.below(k)
	files, err := as.attach(ctx, below)
	if files == nil { // a device
		files = map[string][]*os.File{}
	}
	if base, ok := files[k.group("top")]; ok {
		files[k.group("base")] = base
		delete(files, k.group("top"))
	}
	if err != nil {
		return files, err
	}
	top, err := openOverlay(e.writable(k))
	if err != nil {
		return files, err
	}
	files[k.group("top")] = []*os.File{top}
	return files, nil
}

func (e ephemeral) detach(ctx context.Context, k Disk) error {
	below, as := e.below(k)
	return as.detach(ctx, below)
}

func (e ephemeral) recover(k Disk, active bool) error {
	below, as := e.below(k)
	return as.recover(below, active)
}

func (e ephemeral) describe(k Disk) domain.Disk {
	below, as := e.below(k)
	base := as.describe(below).Layers[0]
	if base.FDGroup != "" {
		base.FDGroup = k.group("base")
	}
	return domain.Disk{Layers: []domain.Layer{
		{Format: string(imageunpack.QCOW2), Path: e.writable(k), FDGroup: k.group("top"), ReadOnly: k.ReadOnly},
		base,
	}}
}

func (e ephemeral) writable(k Disk) string { return e.files.path(k, "disk-"+k.Name+".qcow2") }
