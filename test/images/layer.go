package images

import (
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is a layer of an image, from the lowest up.
type Layer struct {
	Files []File
	// Compressed makes a gzip layer, as most images have. On a loopback, plain ones are quicker.
	Compressed bool
}

func (l Layer) build() (v1.Layer, error) {
	if l.Compressed {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return archive(l.Files), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("make a layer: %w", err)
		}
		return layer, nil
	}
	hash, size, err := v1.SHA256(archive(l.Files))
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return &plainLayer{files: l.Files, hash: hash, size: size}, nil
}

// archive reads the archive of files while it is written.
func archive(files []File) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTar(w, files)) }() // the error reaches the reader
	return r
}

// plainLayer is a layer that is stored as it is.
type plainLayer struct {
	files []File
	hash  v1.Hash
	size  int64
}

func (l *plainLayer) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l *plainLayer) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l *plainLayer) Compressed() (io.ReadCloser, error)   { return archive(l.files), nil }
func (l *plainLayer) Uncompressed() (io.ReadCloser, error) { return archive(l.files), nil }
func (l *plainLayer) Size() (int64, error)                 { return l.size, nil }
func (l *plainLayer) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }
