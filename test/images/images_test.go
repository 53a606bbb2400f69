package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/needs"
)

// node is a registry that only its transport reaches, as a development node's.
type node struct {
	t         *testing.T
	transport http.RoundTripper
}

const address = "127.0.0.1:5000" // no server listens there

func newNode(t *testing.T) node {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return node{t: t, transport: transport}
}

// roundTrip pushes what build makes twice, and returns what the registry has then. Both builds
// must be one image.
func (n node) roundTrip(ref string, build func() (v1.Image, error)) v1.Image {
	n.t.Helper()
	var digests []v1.Hash
	for range 2 {
		img, err := build()
		assert.NilError(n.t, err)
		digest, err := images.Push(n.t.Context(), address+"/"+ref, img, images.PushOptions{Transport: n.transport})
		assert.NilError(n.t, err)
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		n.t.Errorf("%s: two builds give %v", ref, digests)
	}
	parsed, err := name.ParseReference(address+"/"+ref, name.Insecure)
	assert.NilError(n.t, err)
	img, err := remote.Image(parsed, remote.WithTransport(n.transport), remote.WithContext(n.t.Context()))
	assert.NilError(n.t, err)
	if err := validate.Image(img, validate.Fast); err != nil {
		n.t.Errorf("%s: %v", ref, err)
	}
	if got, err := img.Digest(); err != nil || got != digests[0] {
		n.t.Errorf("%s: the registry has %v, %v instead of %v", ref, got, err, digests[0])
	}
	return img
}

// entries reads all layers of an image, one after the other, and the content of files.
func entries(t *testing.T, img v1.Image) (headers []*tar.Header, content map[string][]byte) {
	t.Helper()
	layers, err := img.Layers()
	assert.NilError(t, err)
	content = map[string][]byte{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		assert.NilError(t, err)
		for archive := tar.NewReader(r); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			assert.NilError(t, err)
			headers = append(headers, h)
			if content[h.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
		assert.NilError(t, r.Close())
	}
	return headers, content
}

func names(headers []*tar.Header) []string {
	var all []string
	for _, h := range headers {
		all = append(all, h.Name)
	}
	return all
}

func TestRegistryDisk(t *testing.T) {
	n := newNode(t)
	source := filepath.Join(t.TempDir(), "source.qcow2")
	disk := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	assert.NilError(t, os.WriteFile(source, disk, 0o644))
	for _, c := range []struct {
		name    string
		options images.DiskOptions
		want    []string
		disk    string
	}{
		{"file", images.DiskOptions{}, []string{"disk"}, "disk"},
		{"compressed", images.DiskOptions{Compressed: true}, []string{"disk"}, "disk"},
		{"folder", images.DiskOptions{AsFolder: true}, []string{"disk/", "disk/source.qcow2"}, "disk/source.qcow2"},
		{"named", images.DiskOptions{AsFolder: true, Name: "a.img"}, []string{"disk/", "disk/a.img"}, "disk/a.img"},
		{"layers", images.DiskOptions{
			Below: [][]images.File{{{Name: "etc/"}}, {{Name: "etc/os-release", Data: []byte("ID=x\n")}}},
			Above: [][]images.File{{{Name: "link", Link: "../disk"}}},
		}, []string{"etc/", "etc/os-release", "disk", "link"}, "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := n.roundTrip("disks/"+c.name+":v1", func() (v1.Image, error) { return images.RegistryDisk(source, c.options) })
			headers, content := entries(t, img)
			if got := names(headers); !slices.Equal(got, c.want) {
				t.Errorf("entries %q instead of %q", got, c.want)
			}
			if !bytes.Equal(content[c.disk], disk) {
				t.Errorf("%s has %d bytes that differ from the source's %d", c.disk, len(content[c.disk]), len(disk))
			}
		})
	}
}

func TestMissingDisk(t *testing.T) {
	_, err := images.RegistryDisk(filepath.Join(t.TempDir(), "none"), images.DiskOptions{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestHostileNamesStay(t *testing.T) {
	files := []images.File{
		{Name: "../../etc/passwd", Data: []byte("x")},
		{Name: "disk", Link: "/etc/shadow"},
		{Name: "hard", Type: tar.TypeLink, Link: "../escape"},
		{Name: "device", Type: tar.TypeChar, Mode: 0o666},
	}
	img := newNode(t).roundTrip("hostile:v1", func() (v1.Image, error) {
		return images.FromFiles(v1.Config{}, images.Layer{Files: files})
	})
	headers, _ := entries(t, img)
	if got, want := names(headers), []string{"../../etc/passwd", "disk", "hard", "device"}; !slices.Equal(got, want) {
		t.Fatalf("entries %q instead of %q", got, want)
	}
	if headers[1].Linkname != "/etc/shadow" || headers[2].Linkname != "../escape" || headers[3].Typeflag != tar.TypeChar {
		t.Errorf("links to %q and %q, and a device of type %c", headers[1].Linkname, headers[2].Linkname, headers[3].Typeflag)
	}
}

// unpack writes an image's files under a folder, which it returns.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	headers, content := entries(t, img)
	for _, h := range headers {
		path := filepath.Join(root, h.Name)
		var err error
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeLink:
			err = os.Link(filepath.Join(root, h.Linkname), path)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		default:
			err = os.WriteFile(path, content[h.Name], h.FileInfo().Mode())
		}
		assert.NilError(t, err)
	}
	return root
}

func TestBusybox(t *testing.T) {
	needs.Parts(t, "root, a Debian mirror")
	img := newNode(t).roundTrip("busybox:dev", func() (v1.Image, error) { return images.Busybox(t.Context(), guest.Options{}) })
	root := unpack(t, img)
	// With the image's own libraries: it is the image that must run, not this machine.
	out, err := exec.CommandContext(t.Context(), "chroot", root, "/bin/sh", "-c", "echo it runs; sleep 0; wget --help").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "it runs\n") {
		t.Errorf("busybox says %q, %v", out, err)
	}
}

func TestDebian(t *testing.T) {
	needs.Parts(t, "root, a Debian mirror")
	img := newNode(t).roundTrip("debian:dev", func() (v1.Image, error) {
		layer, err := images.Debian(t.Context(), guest.Options{}, "xz-utils")
		if err != nil {
			return nil, err
		}
		return images.FromFiles(v1.Config{}, layer)
	})
	root := unpack(t, img)
	cmd := exec.CommandContext(t.Context(), "chroot", root, "/bin/xz", "--stdout")
	cmd.Stdin = strings.NewReader("text")
	compressed, err := cmd.Output()
	if err != nil || !bytes.HasPrefix(compressed, []byte("\xfd7zXZ")) {
		t.Errorf("xz writes %q, %v", compressed, err)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share/doc")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("documentation is in the image: %v", err)
	}
}
