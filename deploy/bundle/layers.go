package bundle

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// image puts the tree's layers into an image, the lowest first.
func (t *tree) image(o Options) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, name := range []string{libraries, node, aarch64, own} {
		file := filepath.Join(o.Scratch, name+".tar.zst")
		none, err := t.layer(file, name)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", name, err)
		}
		if none {
			continue
		}
		// containerd reads layers of zstd since version 1.5.
		layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayerZStd))
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", name, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer: layer, Annotations: map[string]string{LayerAnnotation: name}, MediaType: types.OCILayerZStd,
		})
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", name, err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.Architecture
	config.Config = v1.Config{Labels: map[string]string{
		"org.opencontainers.image.title":   "nodevirt-bundle",
		"org.opencontainers.image.version": o.Version,
		"org.opencontainers.image.source":  "https://github.com/nodevirt/nodevirt",
	}}
	return mutate.ConfigFile(img, config)
}

// LayerAnnotation names a layer in the image's manifest.
const LayerAnnotation = "nodevirt.io/bundle-layer"

// layer writes the archive of a layer, and reports whether the layer has no file.
func (t *tree) layer(file, layer string) (none bool, err error) {
	f, err := os.Create(file)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriterSize(f, 1<<20)
	// One goroutine, so that what is written never depends on the number of processors.
	z, err := zstd.NewWriter(buffered, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return false, err
	}
	w := tar.NewWriter(z)
	none = true
	for _, name := range t.inLayer(layer) {
		none = false
		if err := t.write(w, name); err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return none, errors.Join(w.Close(), z.Close(), buffered.Flush())
}

// inLayer returns a layer's paths and those of the folders that they are in, in order.
func (t *tree) inLayer(layer string) []string {
	wanted := map[string]bool{}
	for name, e := range t.entries {
		if e.layer != layer {
			continue
		}
		for ; name != "."; name = path.Dir(name) {
			wanted[name] = true
		}
	}
	var names []string
	for _, name := range t.names() {
		if wanted[name] {
			names = append(names, name)
		}
	}
	return names
}

// write writes an entry. Its owner is root and its time is always the same.
func (t *tree) write(w *tar.Writer, name string) error {
	e := t.entries[name]
	h := &tar.Header{Name: name, Typeflag: e.kind, Mode: e.mode, Linkname: e.target, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	switch e.kind {
	case tar.TypeDir:
		h.Name += "/"
	case tar.TypeReg:
		h.Size = e.size
	}
	if err := w.WriteHeader(h); err != nil || e.kind != tar.TypeReg {
		return err
	}
	_, err := io.Copy(w, t.open(e))
	return err
}
