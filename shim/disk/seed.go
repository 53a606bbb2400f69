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

// seedName is the name of cloud-init's disk in the container's folder.
const seedName = "seed.iso"

// WriteDevices writes the devices with tags to the config drive of a VM, which has the drive open or not.
func (a *Attachments) WriteDevices(r record.Container, devices []vmspec.TaggedDevice) error {
	for _, k := range of(r) {
		if k.Source == vmspec.SourceConfigDrive {
			return k.wrap("write the devices' tags to", seed.WriteDevices(a.files.path(k, seedName), devices))
		}
	}
	return nil
}

// seedDisk is cloud-init's disk.
func seedDisk(files folders, layout seed.Layout, hooks seedHooks) isoDisk {
	return isoDisk{
		files: files,
		name:  func(Disk) string { return seedName },
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
			if k.Source == vmspec.SourceConfigDrive {
				content.MetaData = vmspec.WithRoom(content.MetaData, vmspec.Tagged(k.VM.Spec))
			}
			return seed.Write(ctx, path, layout, content)
		},
	}
}
