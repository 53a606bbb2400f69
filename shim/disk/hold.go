package disk

import (
	"context"
	"strings"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Hold returns what the disks of a container that has no record yet will be made
// of. Own is the disk of the container's image, held for the container's id. What
// it holds of other images, also if it fails, is given back by [Disks.Release].
func (d *Disks) Hold(_ context.Context, _ string, spec vmspec.Spec, own imageunpack.Disk) (map[string]record.Disk, error) {
	held := map[string]record.Disk{}
	for _, k := range spec.Disks {
		var content record.Disk
		if k.Source == vmspec.SourceImage {
			content.Image = &own
		}
		held[k.Name] = content
	}
	return held, nil
}

// Release gives back the registry disks of a container, the one of its own image
// included.
func (d *Disks) Release(ctx context.Context, id string, _ vmspec.Spec) error {
	return d.Unpacker.Release(ctx, id)
}

// Container is the id of the container that a registry disk is held for, out of
// the owner that package imageunpack tells.
func Container(owner string) string {
	id, _, _ := strings.Cut(owner, ".")
	return id
}
