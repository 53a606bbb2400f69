package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// readOnly is a registry disk that the guest can't write, such as a CD: QEMU reads the
// file in the image.
type readOnly struct {
	passive
	images imageOpener
}

func (readOnly) create(context.Context, Disk) error { return nil }

func (r readOnly) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := r.images.Open(ctx, k.image(), k.image().Path)
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("base"): {f}}, nil
}

func (r readOnly) describe(k Disk) domain.Disk {
	return domain.Disk{Layers: []domain.Layer{{
		Format: string(k.image().Format), Path: k.image().Path, FDGroup: k.group("base"), ReadOnly: true,
	}}}
}
