package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/stargz-snapshotter/estargz"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/test/images"
)

func TestAnArchiveIsAnImageLayout(t *testing.T) {
	for name, lazy := range map[string]bool{"plain": false, "lazy": true} {
		t.Run(name, func(t *testing.T) { testArchive(t, lazy) })
	}
}

func testArchive(t *testing.T, lazy bool) {
	t.Helper()
	disk, file := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	var files [2][]byte
	for i := range files {
		b := build{tag: "example.com/d:1", file: file, arch: "amd64", lazy: lazy, out: io.Discard, errOut: io.Discard}
		if err := b.run(t.Context(), disk); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the same disk makes different archives")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xf", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	if name := m.Manifests[0].Annotations["io.containerd.image.name"]; name != "example.com/d:1" {
		t.Errorf("the image is called %q", name)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img, validate.Fast); err != nil {
		t.Error(err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if toc := manifest.Layers[0].Annotations[estargz.TOCJSONDigestAnnotation]; (toc != "") != lazy {
		t.Errorf("the layer's table of contents is %q", toc)
	}
}

func TestAnArchiveThatFailsLeavesTheOldOne(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := build{tag: "d:1", file: file, out: io.Discard, errOut: io.Discard}
	if err := b.run(t.Context(), file); err == nil || !strings.Contains(err.Error(), "multiple of 512") {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left is %v, %v", entries, err)
	}
}

func TestExtractedImagesAreCheckedAsUnpackedOnes(t *testing.T) {
	sound := make([]byte, 4096)
	for name, c := range map[string]struct {
		layers [][]images.File
		want   string // of the error; empty if the disk is fine
	}{
		"file":              {[][]images.File{{{Name: "disk", Data: sound}}}, ""},
		"folder":            {[][]images.File{{{Name: "etc/"}, {Name: "disk/"}, {Name: "disk/a", Data: sound}}}, ""},
		"link inside":       {[][]images.File{{{Name: "disk/a", Data: sound}, {Name: "disk/b", Link: "a"}}}, ""},
		"replaced":          {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: "disk/.wh.a"}, {Name: "disk/b", Data: sound}}}, ""},
		"nothing":           {[][]images.File{{{Name: "etc/", Mode: 0o755}}}, "no disk in /disk"},
		"whited out":        {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: "disk/.wh.a"}}}, "no disk in /disk"},
		"two":               {[][]images.File{{{Name: "disk/a", Data: sound}, {Name: "disk/b", Data: sound}}}, "not exactly one disk"},
		"link to folder":    {[][]images.File{{{Name: "images/a", Data: sound}, {Name: "disk", Link: "images"}}}, ""},
		"link below":        {[][]images.File{{{Name: "images/a", Data: sound}}, {{Name: "disk/"}}, {{Name: "disk/d", Data: sound}}}, ""},
		"links on links":    {[][]images.File{{{Name: "data/v1/a", Data: sound}}, {{Name: "images", Link: "data"}, {Name: "disk", Link: "images/v1"}}}, ""},
		"link to lower":     {[][]images.File{{{Name: "images/a", Data: sound}}, {{Name: "disk", Link: "images/a"}}}, ""},
		"hard link out":     {[][]images.File{{{Name: "images/a", Data: sound}, {Name: "disk/d", Type: tar.TypeLink, Link: "images/a"}}}, ""},
		"hard link below":   {[][]images.File{{{Name: "images/a", Data: sound}}, {{Name: "disk/d", Type: tar.TypeLink, Link: "images/a"}}}, ""},
		"hard link to none": {[][]images.File{{{Name: "disk/d", Type: tar.TypeLink, Link: "images/a"}}}, "no disk in /disk"},
		"link to none":      {[][]images.File{{{Name: "disk", Link: "images"}}}, "no such file"},
		"loop":              {[][]images.File{{{Name: "disk", Link: "other"}, {Name: "other", Link: "disk"}}}, "loop"},
		"link out":          {[][]images.File{{{Name: "disk", Link: "/etc/passwd"}}}, "symbolic link"},
		"link up":           {[][]images.File{{{Name: "disk", Link: "../../../../etc/passwd"}}}, "symbolic link"},
		"made opaque":       {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: "disk/.wh..wh..opq"}, {Name: "disk/b", Data: sound}}}, ""},
		"opaque top":        {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: ".wh..wh..opq"}}}, "no disk in /disk"},
		"whole gone":        {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: ".wh.disk"}}}, "no disk in /disk"},
		"file on top":       {[][]images.File{{{Name: "disk/a/b", Data: sound}}, {{Name: "disk", Data: sound}}}, ""},
		"other type":        {[][]images.File{{{Name: "disk/a", Data: sound}}, {{Name: "disk/a", Type: tar.TypeFifo}}}, "not exactly one disk"},
		"twice":             {[][]images.File{{{Name: "disk", Type: tar.TypeFifo}, {Name: "disk", Data: sound}}}, ""},
		"hard link":         {[][]images.File{{{Name: "disk/a", Data: sound}, {Name: "disk/b", Type: tar.TypeLink, Link: "disk/a"}}}, "not exactly one disk"},
		"too large":         {[][]images.File{{{Name: "disk", Data: make([]byte, 2<<20)}}}, "a file of 2Mi, but this node allows at most 1Mi"},
		"device":            {[][]images.File{{{Name: "disk", Type: tar.TypeBlock}}}, "not a regular file"},
		"empty":             {[][]images.File{{{Name: "disk"}}}, "empty file"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			disk := imageunpack.Disk{}
			if err = extract(t.Context(), imageOf(t, c.layers), root, 1<<20, io.Discard); err == nil {
				disk, err = imageunpack.Examine(t.Context(), root, "", 1<<20)
			}
			if c.want == "" && (err != nil || disk.Size != int64(len(sound))) {
				t.Errorf("%+v, %v", disk, err)
			}
			if c.want != "" && (err == nil || !isProblem(err) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func imageOf(t *testing.T, files [][]images.File) v1.Image {
	t.Helper()
	var layers []images.Layer
	for i, f := range files {
		layers = append(layers, images.Layer{Files: f, Compressed: i%2 == 1})
	}
	img, err := images.FromFiles(v1.Config{}, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
