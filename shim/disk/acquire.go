package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Hold returns what the disks of the container of an id, which has no record yet,
// will be made of the disk of the container's own image, held for that id.
// What Hold holds of other images, also if it fails, [Disks.Release] gives back.
// Its errors are imageunpack's, and ErrUnknown for an import that there isn't.
func (d *Disks) Hold(ctx context.Context, id, namespace string, spec vmspec.Spec, own imageunpack.Disk) (map[string]record.Disk, error) {
	held := map[string]record.Disk{}
	for _, k := range spec.Disks {
		var content record.Disk
		switch {
		case k.Source == vmspec.SourceImage, k.Origin == vmspec.OriginOwn:
			content.Image = &own
		case k.Source == vmspec.SourceVolume, k.Origin == vmspec.OriginVolume:
			image, err := d.Unpacker.Acquire(ctx, owner(id, k), k.Image, k.Path)
			if errors.Is(err, imageunpack.ErrNoDisk) {
				err = fmt.Errorf("%w: mount an image with a disk there, or leave this volume out", err)
			}
			if err != nil {
				return nil, fmt.Errorf("disk %q: %w", k.Name, err)
			}
			content.Image = &image
		case k.Source == vmspec.SourceImport:
			i, err := d.holdImport(k.Import, namespace)
			if err != nil {
				return nil, fmt.Errorf("disk %q: %w", k.Name, err)
			}
			content.Import = i
		}
		held[k.Name] = content
	}
	return held, nil
}

// Release gives back the registry disks of a container, that of its own image
// included. Those that are not held are no error.
func (d *Disks) Release(ctx context.Context, id string, spec vmspec.Spec) error {
	var errs []error
	for _, k := range spec.Disks {
		if k.Source == vmspec.SourceVolume || k.Origin == vmspec.OriginVolume {
			errs = append(errs, d.Unpacker.Release(ctx, owner(id, k)))
		}
	}
	return errors.Join(append(errs, d.Unpacker.Release(ctx, id))...)
}

// owner is for whom package imageunpack holds the disk of an image volume. A
// disk's name has no dot.
func owner(id string, k vmspec.Disk) string { return id + "." + k.Name }

// Container is the id of the container that a registry disk is held for, out of
// the owner that package imageunpack tells.
func Container(owner string) string {
	id, _, _ := strings.Cut(owner, ".")
	return id
}
