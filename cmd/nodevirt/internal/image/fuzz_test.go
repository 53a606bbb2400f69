package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
)

// fuzzedSize is the largest disk of a fuzzed image, in bytes.
const fuzzedSize = 1 << 20

// FuzzLayer extracts and examines images of any layer, as a registry may send it: eStargz, gzip, or none of these. Nothing
// is written beside the image's folder, and no file there is longer than a disk may be.
func FuzzLayer(f *testing.F) {
	plain := layerOf(f, map[string]string{"disk/a.img": "512 bytes", "disk/b": ""})
	f.Add(plain)
	lazy, err := registrydisk.Lazy(func() io.ReadCloser { return io.NopCloser(bytes.NewReader(plain)) })
	assert.NilError(f, err)
	stream, err := lazy.Layer.Compressed()
	assert.NilError(f, err)
	estargz, err := io.ReadAll(stream)
	assert.NilError(f, err)
	f.Add(estargz)
	f.Add(estargz[:len(estargz)-51]) // without the footer that finds the table of contents
	f.Fuzz(func(t *testing.T, layer []byte) {
		img, err := fuzzedImage(layer)
		if err != nil {
			return
		}
		top := t.TempDir()
		assert.NilError(t, os.Mkdir(filepath.Join(top, "image"), 0o700))
		root, err := os.OpenRoot(filepath.Join(top, "image"))
		assert.NilError(t, err)
		defer root.Close()
		if extract(t.Context(), img, root, fuzzedSize, io.Discard) == nil {
			if _, err := imageunpack.Examine(t.Context(), root, "", fuzzedSize); err != nil && !isProblem(err) {
				t.Errorf("%v", err)
			}
		}
		beside, err := os.ReadDir(top)
		assert.NilError(t, err)
		assert.Equal(t, len(beside), 1)
		assert.NilError(t, filepath.WalkDir(root.Name(), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Size() > fuzzedSize {
				t.Errorf("%s has %d bytes", path, info.Size())
			}
			return err
		}))
	})
}

func fuzzedImage(layer []byte) (v1.Image, error) {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, l)
}

// layerOf is an archive of files.
func layerOf(f *testing.F, files map[string]string) []byte {
	f.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600})
		_, writeErr := io.WriteString(w, content)
		assert.NilError(f, errors.Join(err, writeErr))
	}
	assert.NilError(f, w.Close())
	return b.Bytes()
}
