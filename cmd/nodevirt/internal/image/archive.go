package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/renameio/v2"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// archive is a file with an OCI image layout (image-spec, image-layout.md).
type archive struct{ path string }

func (archive) doing() string  { return "write" }
func (a archive) done() string { return "written to " + a.path }
func (archive) close()         {}

// write does not change the file if it fails.
func (a archive) write(_ context.Context, t target, bar *cli.Bar) error {
	f, err := renameio.NewPendingFile(a.path, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	defer f.Cleanup() //nolint:errcheck // after the replacement there is nothing to clean
	w := tar.NewWriter(f)
	if err := errors.Join(writeLayout(w, t, bar), w.Close()); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	return nil
}

func writeLayout(w *tar.Writer, t target, bar *cli.Bar) error {
	index, err := indexOf(t)
	if err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{ocispec.ImageLayoutFile, `{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`},
		{ocispec.ImageIndexFile, string(index)},
	} {
		if err := addBytes(w, f.name, []byte(f.text)); err != nil {
			return err
		}
	}
	manifest, err := t.img.RawManifest()
	if err != nil {
		return err
	}
	digest, err := t.img.Digest()
	if err != nil {
		return err
	}
	if err := addBytes(w, blobPath(digest), manifest); err != nil {
		return err
	}
	config, err := partial.ConfigLayer(t.img)
	if err != nil {
		return err
	}
	layers, err := t.img.Layers()
	if err != nil {
		return err
	}
	if err := addBlob(w, config, io.Discard); err != nil {
		return err
	}
	for _, l := range layers {
		if err := addBlob(w, l, bar); err != nil {
			return err
		}
	}
	return nil
}

// indexOf returns the layout's index. containerd and skopeo find the image's name in its
// annotations.
func indexOf(t target) ([]byte, error) {
	desc, err := partial.Descriptor(t.img)
	if err != nil {
		return nil, err
	}
	desc.Annotations = map[string]string{
		"io.containerd.image.name": t.name,
		ocispec.AnnotationRefName:  t.name,
	}
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*desc},
	})
}

func blobPath(h v1.Hash) string { return path.Join(ocispec.ImageBlobsDir, h.Algorithm, h.Hex) }

func addBytes(w *tar.Writer, name string, b []byte) error {
	if err := w.WriteHeader(header(name, int64(len(b)))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

func addBlob(w *tar.Writer, l v1.Layer, bar io.Writer) error {
	digest, err := l.Digest()
	if err != nil {
		return err
	}
	size, err := l.Size()
	if err != nil {
		return err
	}
	content, err := l.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	if err := w.WriteHeader(header(blobPath(digest), size)); err != nil {
		return err
	}
	_, err = io.Copy(w, io.TeeReader(content, bar))
	return err
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}
}
