package disk

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/seed"
)

// seedDisk is cloud-init's disk.
func seedDisk(files folders, layout seed.Layout) isoDisk {
	return isoDisk{
		files: files,
		name:  func(Disk) string { return "seed.iso" },
		write: func(ctx context.Context, k Disk, path string) error {
			content, err := seed.WithSecrets(layout, *k.VM.Spec.Seed)
			if err != nil {
				return err
			}
			return seed.Write(ctx, path, layout, content)
		},
	}
}
