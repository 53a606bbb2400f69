package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/seed"
)

// seedDisk is the NoCloud disk: a file in the container's folder.
type seedDisk struct {
	passive
	files folders
}

const seedFile = "seed.iso"

func (s seedDisk) create(ctx context.Context, k Disk) error {
	content, err := seed.WithSecrets(*k.VM.Spec.Seed)
	if err != nil {
		return err
	}
	return seed.Write(ctx, s.files.path(k, seedFile), content)
}

func (s seedDisk) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := os.Open(s.files.path(k, seedFile))
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("top"): {f}}, nil
}

func (s seedDisk) describe(k Disk) domain.Disk {
	return domain.Disk{Layers: []domain.Layer{{
		Format: string(imageunpack.Raw), Path: s.files.path(k, seedFile), FDGroup: k.group("top"), ReadOnly: true,
	}}}
}
