package images

import (
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/nodevirt/nodevirt/imageunpack/registrydisk/layout"
)

// Layer is a layer of an image, from the lowest up.
type Layer struct {
	Files []File
	// Compressed makes a gzip layer, as most images have. On a loopback, plain ones are quicker.
	Compressed bool
}

func (l Layer) build() (v1.Layer, error) {
	if l.Compressed {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return Archive(l.Files), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("make a layer: %w", err)
		}
		return layer, nil
	}
	return layout.Plain(func() io.ReadCloser { return Archive(l.Files) })
}

// Archive reads the archive of files while it is written.
func Archive(files []File) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTar(w, files)) }() // the error reaches the reader
	return r
}
