package registrydisk_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
	"github.com/nodevirt/nodevirt/test/needs"
)

func TestAnImageHoldsItsDisk(t *testing.T) {
	content := bytes.Repeat([]byte("a disk.."), 1024)
	disk, img := build(t, write(t, "some.raw", content))
	if disk.Format != imageunpack.Raw || disk.VirtualSize != int64(len(content)) {
		t.Errorf("the disk is taken for %+v", disk)
	}
	if err := validate.Image(img, validate.Fast); err != nil {
		t.Errorf("the image is not sound: %v", err)
	}
	type entry struct {
		Name     string
		Mode     int64
		UID, GID int
		Unix     int64
		Text     string
	}
	want := []entry{
		{Name: "disk/", Mode: 0o755},
		{Name: "disk/disk.img", Mode: 0o444, Text: string(content)},
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []entry
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, entry{h.Name, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), string(text)})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheDigestDependsOnTheDiskAlone(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 4096)
	one, two := write(t, "one.img", content), write(t, "two.raw", content)
	if err := os.Chmod(two, 0o600); err != nil {
		t.Fatal(err)
	}
	// What a release has promised: this digest changes only with a note in the change log.
	const want = "sha256:7624de60f9700a0769a1d8e0f5aa0be77afd8b0024b9a5e2c022fb532d4aa5c0"
	for _, path := range []string{one, two} {
		if _, img := build(t, path); hash(t, img) != want {
			t.Errorf("%s has the digest %s, not %s", path, hash(t, img), want)
		}
	}
	_, img := build(t, write(t, "other.img", bytes.Repeat([]byte{8}, 4096)))
	if hash(t, img) == want {
		t.Error("another disk has the same digest")
	}
}

// TestALazyImage reads it as those do that know nothing of chunks, and as a remote snapshotter does.
func TestALazyImage(t *testing.T) {
	content := make([]byte, 5<<19) // not a multiple of a chunk
	for i := range content {
		content[i] = byte(i >> 8 * i)
	}
	disk, img := buildWith(t, write(t, "some.raw", content), registrydisk.Options{Lazy: true})
	if err := validate.Image(img); err != nil {
		t.Errorf("the image is not sound: %v", err)
	}
	m, err := img.Manifest()
	if err != nil || len(m.Layers) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if m.Layers[0].MediaType != types.OCILayer {
		t.Errorf("the layer's type is %s", m.Layers[0].MediaType)
	}
	toc, err := digest.Parse(m.Layers[0].Annotations[estargz.TOCJSONDigestAnnotation])
	if err != nil {
		t.Fatalf("annotations %v: %v", m.Layers[0].Annotations, err)
	}
	r := open(t, img)
	verifier, err := r.VerifyTOC(toc)
	if err != nil {
		t.Fatal(err)
	}
	file, err := r.OpenFile(disk.Name())
	if err != nil {
		t.Fatal(err)
	}
	var chunks []int64
	for at := int64(0); at < disk.Size; {
		c, ok := r.ChunkEntryForOffset(disk.Name(), at)
		if !ok {
			t.Fatalf("no chunk at %d", at)
		}
		got := make([]byte, c.ChunkSize)
		if _, err := file.ReadAt(got, at); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, content[at:at+c.ChunkSize]) {
			t.Errorf("the chunk at %d has another content", at)
		}
		v, err := verifier.Verifier(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Write(got); err != nil || !v.Verified() {
			t.Errorf("the chunk at %d is not verified: %v", at, err)
		}
		chunks = append(chunks, c.ChunkSize)
		at += c.ChunkSize
	}
	if diff := cmp.Diff([]int64{1 << 20, 1 << 20, 1 << 19}, chunks); diff != "" {
		t.Error(diff)
	}
}

func TestALazyImageOfADiskIsOneImage(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 4096)
	_, one := buildWith(t, write(t, "one.img", content), registrydisk.Options{Lazy: true})
	_, two := buildWith(t, write(t, "two.raw", content), registrydisk.Options{Lazy: true})
	if hash(t, one) != hash(t, two) {
		t.Errorf("equal disks have the digests %s and %s", hash(t, one), hash(t, two))
	}
	if _, plain := build(t, write(t, "plain", content)); hash(t, plain) == hash(t, one) {
		t.Error("an image that is not lazy has the same digest")
	}
}

// open opens the layer as eStargz.
func open(t *testing.T, img v1.Image) *estargz.Reader {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	all, err := io.ReadAll(blob)
	if err != nil {
		t.Fatal(err)
	}
	r, err := estargz.Open(io.NewSectionReader(bytes.NewReader(all), 0, int64(len(all))))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestADiskOfQCOW2KeepsItsFormatInItsName(t *testing.T) {
	needs.Parts(t, "QEMU")
	path := filepath.Join(t.TempDir(), "x")
	cmd := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", path, "1G")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	disk, _ := build(t, path)
	if disk.Name() != "disk/disk.qcow2" || disk.VirtualSize != 1<<30 {
		t.Errorf("got %s of %d bytes", disk.Name(), disk.VirtualSize)
	}
}

func TestWhatNoMachineBootsFromIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ path, want string }{
		"absent":    {filepath.Join(t.TempDir(), "x"), "no such file"},
		"a folder":  {t.TempDir(), "is not a regular file: copy it into one with qemu-img"},
		"a device":  {"/dev/null", "is not a regular file"},
		"empty":     {write(t, "e", nil), "empty file"},
		"uneven":    {write(t, "u", make([]byte, 1000)), "multiple of 512"},
		"foreign":   {write(t, "f", append([]byte("\x1f\x8b\x08"), make([]byte, 1021)...)), "format gzip"},
		"truncated": {write(t, "q", append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 8)...)), "truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := registrydisk.Check(c.path, 1<<40)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("got %v, want the path and %q", err, c.want)
			}
		})
	}
}

func TestADiskThatChangesIsAnError(t *testing.T) {
	path := write(t, "d", make([]byte, 4096))
	disk, err := registrydisk.Check(path, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Image(t.Context(), registrydisk.Options{Architecture: "amd64"}); err == nil ||
		!strings.Contains(err.Error(), "has changed") {
		t.Errorf("got %v", err)
	}
}

func TestAnInterruptEndsTheReading(t *testing.T) {
	disk, err := registrydisk.Check(write(t, "d", make([]byte, 4096)), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := disk.Image(ctx, registrydisk.Options{Architecture: "amd64"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func build(t *testing.T, path string) (registrydisk.Disk, v1.Image) {
	t.Helper()
	return buildWith(t, path, registrydisk.Options{})
}

func buildWith(t *testing.T, path string, o registrydisk.Options) (registrydisk.Disk, v1.Image) {
	t.Helper()
	disk, err := registrydisk.Check(path, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	o.Architecture, o.Progress = "amd64", &seen
	img, err := disk.Image(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if int64(seen.Len()) != disk.Size {
		t.Errorf("progress reported %d bytes, not %d", seen.Len(), disk.Size)
	}
	return disk, img
}

func hash(t *testing.T, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}
