package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// overlay is a registry disk that stays in its image, below a qcow2 file in the
// container's folder that takes the guest's writes.
type overlay struct {
	passive
	images   imageOpener
	overlays overlayMaker
	files    folders
}

// file returns the overlay's name.
func (overlay) file(k Disk) string {
	if k.Source == vmspec.SourceImage {
		return "disk.qcow2"
	}
	return "disk-" + k.Name + ".qcow2"
}

func (o overlay) create(_ context.Context, k Disk) error {
	return o.overlays.Overlay(k.image(), o.writable(k))
}

func (o overlay) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	top, err := openOverlay(o.writable(k))
	if err != nil {
		return nil, err
	}
	files := map[string][]*os.File{k.group("top"): {top}}
	base, err := o.images.Open(ctx, k.image(), k.image().Path)
	if err != nil {
		return files, err
	}
	files[k.group("base")] = []*os.File{base}
	return files, nil
}

func (o overlay) describe(k Disk) domain.Disk {
	image := k.image()
	return domain.Disk{Layers: []domain.Layer{
		{Format: string(imageunpack.QCOW2), Path: o.writable(k), FDGroup: k.group("top"), ReadOnly: k.ReadOnly},
		{Format: string(image.Format), Path: image.Path, FDGroup: k.group("base"), ReadOnly: true},
	}}
}

func (o overlay) writable(k Disk) string { return o.files.path(k, o.file(k)) }
