// Package layout has the layout of registry disks that nodevirt builds: the archive of the one layer,
// and the image around it.
//
// It ensures that equal disks have equal digests: times are the epoch, and the config is fixed. It
// leaves disks to package registrydisk and to package push of exports, and knows no disk format.
package layout

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The folder of the disk in the archive, and the disk's path by its format.
const (
	Folder = "disk/"
	QCOW2  = Folder + "disk.qcow2"
	Raw    = Folder + "disk.img"
)

// File is the disk in the archive.
type File struct {
	// Path is [QCOW2] or [Raw].
	Path string
	// Size is in bytes.
	Size int64
	// Owner is the file's user and group.
	Owner int
}

// Write writes the archive. Content writes the file's bytes.
func Write(w io.Writer, f File, content func(io.Writer) error) error {
	t := tar.NewWriter(w)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: Folder, Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: f.Path, Mode: 0o444, Size: f.Size, Uid: f.Owner, Gid: f.Owner},
	} {
		h.ModTime = time.Unix(0, 0)
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
	}
	if err := content(t); err != nil {
		return err
	}
	return t.Close()
}

// Plain returns an uncompressed layer of an archive. It calls open each time that
// the layer is read, and once for the digest.
func Plain(open func() io.ReadCloser) (v1.Layer, error) {
	r := open()
	hash, size, err := v1.SHA256(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return &plain{open: open, hash: hash, size: size}, nil
}

// plain is an uncompressed layer.
type plain struct {
	open func() io.ReadCloser
	hash v1.Hash
	size int64
}

func (l *plain) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l *plain) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l *plain) Compressed() (io.ReadCloser, error)   { return l.open(), nil }
func (l *plain) Uncompressed() (io.ReadCloser, error) { return l.open(), nil }
func (l *plain) Size() (int64, error)                 { return l.size, nil }
func (l *plain) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }

// Image returns the image of a layer. Architecture is that of the guest's code, by Go's name: amd64.
// By is what made the layer, for the image's history.
func Image(layer mutate.Addendum, architecture, by string) (v1.Image, error) {
	layer.History = v1.History{CreatedBy: by, Created: epoch()}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = architecture, "linux", epoch()
	return mutate.ConfigFile(img, config)
}

func epoch() v1.Time { return v1.Time{Time: time.Unix(0, 0).UTC()} }
