package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// isoDisk is a read-only disk, such as an ISO 9660 image, in the container's folder. One
// with files holds them as they are when the container is created.
type isoDisk struct {
	passive
	files folders
	// name is the image's name in the folder, and write writes it.
	name  func(Disk) string
	write func(ctx context.Context, k Disk, path string) error
}

func (i isoDisk) create(ctx context.Context, k Disk) error { return i.write(ctx, k, i.path(k)) }

// attach opens the image. One that a power cut left empty is written again: guests only read it, and its content is
// in the record and in the pod's volumes.
func (i isoDisk) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := openWhole(i.path(k), os.O_RDONLY, 1)
	if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		if err = i.write(ctx, k, i.path(k)); err == nil {
			f, err = openWhole(i.path(k), os.O_RDONLY, 1)
		}
	}
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("top"): {f}}, nil
}

func (i isoDisk) describe(k Disk) domain.Disk {
	return domain.Disk{Layers: []domain.Layer{{
		Format: string(imageunpack.Raw), Path: i.path(k), FDGroup: k.group("top"), ReadOnly: true,
	}}}
}

func (i isoDisk) path(k Disk) string { return i.files.path(k, i.name(k)) }
