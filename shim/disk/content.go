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

// Facts returns what acquired disks say about how to attach them.
func Facts(acquired map[string]record.Disk) map[string]vmspec.DiskFacts {
	facts := map[string]vmspec.DiskFacts{}
	for name, disk := range acquired {
		facts[name] = vmspec.DiskFacts{CD: disk.Image != nil && disk.Image.CD, BlockSize: disk.BlockSize}
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
type mountedImage struct{ images imageHolder }

func (m mountedImage) acquire(ctx context.Context, k Disk, _ *imageunpack.Disk) (record.Disk, error) {
	image, err := m.images.Acquire(ctx, k.owner(), k.Image, k.Path)
	if errors.Is(err, imageunpack.ErrNoDisk) {
		err = fmt.Errorf("%w: mount an image with a disk there, or leave this volume out", err)
	}
	if err != nil {
		return record.Disk{}, err
	}
	return record.Disk{Image: &image}, nil
}

func (m mountedImage) release(ctx context.Context, k Disk) error {
	return m.images.Release(ctx, k.owner())
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
