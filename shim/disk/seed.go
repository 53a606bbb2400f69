package disk

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// seedHooks change what a cloud-init disk holds; [hooks.Hooks].
type seedHooks interface {
	PreCloudInitIso(ctx context.Context, r record.Container, source vmspec.Source, content vmspec.Seed) (vmspec.Seed, error)
}

// seedDisk is cloud-init's disk.
func seedDisk(files folders, layout seed.Layout, hooks seedHooks) isoDisk {
	return isoDisk{
		files: files,
		name:  func(Disk) string { return "seed.iso" },
		write: func(ctx context.Context, k Disk, path string) error {
			content, err := seed.WithSecrets(layout, *k.VM.Spec.Seed)
			if err != nil {
				return err
			}
			if k.VM.Spec.Hooks != nil {
				if content, err = hooks.PreCloudInitIso(ctx, k.VM, k.Source, content); err != nil {
					return err
				}
			}
			return seed.Write(ctx, path, layout, content)
		},
	}
}
