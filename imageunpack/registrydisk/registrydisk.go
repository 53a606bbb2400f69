// Package registrydisk wraps a disk as a registry disk: an OCI image whose one
// layer holds the disk in the folder /disk, where nodevirt and KubeVirt look
// for it.
//
// It ensures that equal disks have equal digests: the owner is root, the format
// determines the file's name, and package layout fixes the rest. The layer is not
// compressed: disk formats have their own compression, and a node can use the disk
// without inflating it. A lazy layer is compressed in chunks, and has the tables of a qcow2 file first. Package imageunpack
// checks the disk first. The disk is streamed each time that the image is read.
// Storing the image is left to the caller.
package registrydisk

import (
	"context"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk/layout"
)

// Disk is a disk file that has passed the checks.
type Disk struct {
	// Path is the file's path. The file must not change while its image is in use.
	Path   string
	Format imageunpack.Format
	// Size is the size of the file, VirtualSize that of the guest's disk, and
	// Allocated the space that the file takes, all in bytes.
	Size, VirtualSize, Allocated int64
}

// Check makes the shim's checks of a disk in an image on a file. MaxSize is the maximum size of a disk
// in bytes.
func Check(path string, maxSize int64) (Disk, error) {
	f, info, err := open(path)
	if err != nil {
		return Disk{}, err
	}
	defer f.Close()
	d := Disk{Path: path, Size: info.Size(), Allocated: allocated(info)}
	d.Format, d.VirtualSize, err = imageunpack.Check(f, d.Size, maxSize)
	if err != nil {
		return Disk{}, fmt.Errorf("disk %s: %w", path, err)
	}
	return d, nil
}

// Name returns the disk's path in its image.
func (d Disk) Name() string {
	if d.Format == imageunpack.QCOW2 {
		return layout.QCOW2
	}
	return layout.Raw
}

// Options are the settings of an image.
type Options struct {
	// Architecture is that of the guest's code, by Go's name: amd64.
	Architecture string
	// Progress, if not nil, gets the disk's bytes as they are read for the digest.
	Progress io.Writer
	// Lazy makes a layer as [Lazy] does, which nodes with a remote snapshotter fetch as it is read, of the disk
	// in the order of [imageunpack.Arrange].
	Lazy bool
}

// Image reads the disk once, for its digest, and returns its image.
func (d Disk) Image(ctx context.Context, o Options) (v1.Image, error) {
	layer, err := d.layer(ctx, o)
	if err != nil {
		return nil, err
	}
	img, err := layout.Image(layer, o.Architecture, "nodevirt image build")
	if err != nil {
		return nil, fmt.Errorf("build the image of disk %s: %w", d.Path, err)
	}
	return img, nil
}

// open opens a regular file. It refuses others before opening them, which could
// block.
func open(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open the disk: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("disk %s is not a regular file: copy it into one with "+
			"qemu-img convert -O qcow2 %s disk.qcow2", path, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open the disk: %w", err)
	}
	return f, info, nil
}
