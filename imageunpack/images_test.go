package imageunpack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nodevirt/nodevirt/test/needs"
)

// layer is the content of an image's layer, in order.
type layer []tar.Header

// entries of a layer; a regular file's content is kept in an extended attribute of its header,
// which never reaches the archive.
func file(name string, content []byte) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o666, Size: int64(len(content)),
		PAXRecords: map[string]string{contentKey: string(content)}}
}

func dir(name string) tar.Header {
	return tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}
}

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}

func fifo(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeFifo, Mode: 0o666}
}

func device(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeBlock, Mode: 0o666, Devmajor: 7, Devminor: 200}
}

const contentKey = "TEST.content"

// archive packs a layer.
func (l layer) archive() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range l {
		content := h.PAXRecords[contentKey]
		h.PAXRecords = nil
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// load puts an image of the layers into containerd, not unpacked, under a name of the test's own.
// It returns the name and the image's id.
func (n *node) load(layers ...layer) (ref, id string) {
	n.t.Helper()
	ref = fmt.Sprintf("registry.test/%x:v1", n.t.Name())
	return ref, n.loadAs(ref, layers...)
}

func (n *node) loadAs(ref string, layers ...layer) (id string) {
	n.t.Helper()
	return n.loadWith(ref, v1.ConfigFile{Architecture: "amd64", OS: "linux"}, layers...)
}

// loadWith loads an image with a config of the test's own.
func (n *node) loadWith(ref string, config v1.ConfigFile, layers ...layer) (id string) {
	n.t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &config)
	n.check(err)
	for _, l := range layers {
		archived, err := l.archive()
		n.check(err)
		packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archived)), nil
		})
		n.check(err)
		img, err = mutate.AppendLayers(img, packed)
		n.check(err)
	}
	return n.loadImage(ref, img)
}

// loadImage loads an image that is complete.
func (n *node) loadImage(ref string, img v1.Image) (id string) {
	n.t.Helper()
	tag, err := name.NewTag(ref)
	n.check(err)
	var b bytes.Buffer
	n.check(tarball.Write(tag, img, &b))
	_, err = n.client.Import(n.ctx, &b, containerd.WithAllPlatforms(true))
	n.check(err)
	n.t.Cleanup(func() { n.forget(ref) })
	hash, err := img.ConfigName()
	n.check(err)
	return hash.String()
}

// forget deletes an image and what it was unpacked to.
func (n *node) forget(ref string) {
	n.t.Helper()
	ctx := context.WithoutCancel(n.ctx)
	err := n.client.ImageService().Delete(ctx, ref, images.SynchronousDelete())
	if err != nil && !errdefs.IsNotFound(err) {
		n.t.Error(err)
	}
}

func (n *node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// qemuTool runs qemu-img or qemu-io, and returns what it prints.
func qemuTool(t *testing.T, tool string, args ...string) string {
	t.Helper()
	needs.Parts(t, "QEMU")
	out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", tool, args, err, out)
	}
	return string(out)
}

// pattern is the content of a raw disk of size bytes, no two sectors of which are the same.
func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i>>9) ^ byte(i*7) | 1
	}
	return b
}

// qcow2File makes a qcow2 file with some data in it, compact, with qemu-img's options.
func qcow2File(t *testing.T, content []byte, args ...string) []byte {
	t.Helper()
	raw, out := filepath.Join(t.TempDir(), "raw"), filepath.Join(t.TempDir(), "qcow2")
	if err := os.WriteFile(raw, content, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...)
	qemuTool(t, "qemu-img", append(args, raw, out)...)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
