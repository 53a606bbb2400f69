package imageunpack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
)

// Overlay makes a new qcow2 file at path, with mode 0600, that is backed by d and takes the writes of
// one VM. The caller must delete it. If a file exists at path, Overlay fails and keeps that file.
//
// The overlay's name for its backing file can't be opened. The caller must pass the file of
// [Unpacker.Open] to QEMU as the backing node, by descriptor, with the format of d.
func (u *Unpacker) Overlay(d Disk, path string) error {
	err := create(path, qcow2.New{Size: d.VirtualSize, Backing: backingName(d), BackingFormat: string(d.Format)})
	if err != nil {
		return fmt.Errorf("make overlay %s of image %q: %w", path, d.Image, err)
	}
	return nil
}

// VolumeOverlay makes a new qcow2 file at path that is backed by a volume: a raw disk of size bytes,
// rounded up to a multiple of 512. The same rules apply as for [Unpacker.Overlay].
func (u *Unpacker) VolumeOverlay(size int64, path string) error {
	err := CheckSize("volume", size, u.opts.MaxDiskSize)
	if err == nil {
		size = (size + sector - 1) / sector * sector
		err = create(path, qcow2.New{Size: size, Backing: volumeName, BackingFormat: string(Raw)})
	}
	if err != nil {
		return fmt.Errorf("make overlay %s of a volume: %w", path, err)
	}
	return nil
}

// Blank makes a new qcow2 file at path that holds an empty disk of size bytes, a multiple of 512.
// The same rules apply as for [Unpacker.Overlay].
func (u *Unpacker) Blank(size int64, path string) error {
	err := CheckSize("disk", size, u.opts.MaxDiskSize)
	if err == nil {
		err = create(path, qcow2.New{Size: size})
	}
	if err != nil {
		return fmt.Errorf("make empty disk %s: %w", path, err)
	}
	return nil
}

// create makes a qcow2 file at path.
func create(path string, n qcow2.New) (err error) {
	if !filepath.IsAbs(path) {
		return errors.New("the path is not absolute")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	return errors.Join(f.Chmod(0o600), f.Truncate(n.Length()), n.Fill(f))
}

const (
	// volumeName is an overlay's name for a volume, and imageName the beginning of its name for an
	// image, see [backingName].
	volumeName = "nodevirt-volume:"
	imageName  = "nodevirt-image:"
)

// backingName is an overlay's name for its backing file, for a person who inspects the overlay. QEMU
// and libvirt take the text before the colon for a protocol. Neither has one of that name, so an
// attempt to open the name fails. The path in the image is untrusted and not part of the name.
func backingName(d Disk) string {
	return imageName + d.ImageID
}
