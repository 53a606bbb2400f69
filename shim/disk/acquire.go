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

// Acquire returns what the disks of a container are made of. The container, by its
// id, has no record yet, and its pod is in a Kubernetes namespace. Own is the disk of
// the container's image, acquired for that id, and nil for a VM that uses none.
// [Disks.Release] undoes Acquire, also after an error. Errors are those of
// imageunpack, and ErrUnknown for a missing import.
func (d *Disks) Acquire(
	ctx context.Context, id, namespace string, disks []vmspec.Disk, own *imageunpack.Disk,
) (map[string]record.Disk, error) {
	acquired := map[string]record.Disk{}
	for _, spec := range disks {
		k := Disk{Disk: spec, VM: record.Container{ID: id}, namespace: namespace}
		content, err := d.content(k).acquire(ctx, k, own)
		if err != nil {
			return nil, fmt.Errorf("disk %q: %w", k.Name, err)
		}
		acquired[k.Name] = content
	}
	return acquired, nil
}

// Release releases the images of a container's disks, and the container's own
// image. Images that are not held are no error.
func (d *Disks) Release(ctx context.Context, id string, disks []vmspec.Disk) error {
	var errs []error
	for _, spec := range disks {
		k := Disk{Disk: spec, VM: record.Container{ID: id}}
		errs = append(errs, d.content(k).release(ctx, k))
	}
	return errors.Join(append(errs, d.Unpacker.Release(ctx, id))...)
}

// Facts returns what acquired disks say about how to attach them.
func Facts(acquired map[string]record.Disk) map[string]vmspec.DiskFacts {
	facts := map[string]vmspec.DiskFacts{}
	for name, disk := range acquired {
		facts[name] = vmspec.DiskFacts{CD: disk.Image != nil && disk.Image.CD}
	}
	return facts
}

// nothing is the content of disks that need none.
type nothing struct{}

func (nothing) acquire(context.Context, Disk, *imageunpack.Disk) (record.Disk, error) {
	return record.Disk{}, nil
}
func (nothing) release(context.Context, Disk) error { return nil }

// ownImage is the disk of the container's image, which the caller acquires.
type ownImage struct{ nothing }

// errNoImage says that a disk of the container's image was not acquired.
var errNoImage = errors.New("the disk of the container's image is missing")

func (ownImage) acquire(_ context.Context, _ Disk, own *imageunpack.Disk) (record.Disk, error) {
	if own == nil {
		return record.Disk{}, errNoImage
	}
	return record.Disk{Image: own}, nil
}

// mountedImage is the disk of an image that the container mounts.
type mountedImage struct{ *Disks }

func (m mountedImage) acquire(ctx context.Context, k Disk, _ *imageunpack.Disk) (record.Disk, error) {
	image, err := m.Unpacker.Acquire(ctx, k.owner(), k.Image, k.Path)
	if errors.Is(err, imageunpack.ErrNoDisk) {
		err = fmt.Errorf("%w: mount an image with a disk there, or leave this volume out", err)
	}
	if err != nil {
		return record.Disk{}, err
	}
	return record.Disk{Image: &image}, nil
}

func (m mountedImage) release(ctx context.Context, k Disk) error {
	return m.Unpacker.Release(ctx, k.owner())
}

// owner is the name under which package imageunpack holds a disk's image. The name
// of a disk has no dot.
func (k Disk) owner() string { return k.VM.ID + "." + k.Name }

// Container returns the id of the container that an owner, as package imageunpack
// returns it, or a view belongs to.
func Container(owner string) string {
	id, _, _ := strings.Cut(owner, ".")
	return id
}
