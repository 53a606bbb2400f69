package cli

import (
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

type report struct {
	Digest, Source, Format, Path string
	VirtualSize                  int64
	Layers                       []struct{ Compressed bool }
	Problems                     []string
}

func (u user) testRegistry(t *testing.T) {
	u = u.in(t)
	ref, path := u.n.RegistryAddress()+"/pushed:1", disk(t, "pushed", guest.PowerOff)
	pushed := u.do("image", "build", path, "-t", ref, "--push")
	stored := u.do("image", "build", path, "-t", "stored:1")
	file := u.do("image", "build", path, "-t", "filed:1", "-o", filepath.Join(t.TempDir(), "image.tar"))
	digest := strings.Fields(pushed)[1]
	for _, out := range []string{stored, file} {
		if strings.Fields(out)[1] != digest {
			t.Errorf("the same disk has the digests %s and %s", digest, out)
		}
	}
	for ref, source := range map[string]string{ref: "registry", "stored:1": "containerd"} {
		r := decode[report](t, u.do("image", "inspect", ref, "-o", "json"))
		if r.Digest != digest || r.Format != "raw" || r.VirtualSize != 1<<20 || r.Path != "/disk/disk.img" ||
			len(r.Layers) != 1 || r.Layers[0].Compressed || len(r.Problems) > 0 || !strings.Contains(r.Source, source) {
			t.Errorf("inspect %s prints %+v", ref, r)
		}
	}
	if r := u.try(u.run(ref, "--rm")...); r.code != 0 || !strings.Contains(r.out, "pushed") {
		t.Errorf("run of a pushed image: %+v", r)
	}
}

func (u user) testUnbootable(t *testing.T) {
	u = u.in(t)
	two := []images.File{{Name: "disk/a", Data: make([]byte, 512)}, {Name: "disk/b", Data: make([]byte, 512)}}
	img, err := images.FromFiles(v1.Config{}, images.Layer{Files: two, Compressed: true})
	assert.NilError(t, err)
	ref, err := u.n.Push(t.Context(), "two:1", img)
	assert.NilError(t, err)
	before := u.census(t)
	check := func(where string) {
		t.Helper()
		r := u.try("image", "inspect", ref, "-o", "json")
		got := decode[report](t, r.out)
		if r.code != 1 || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "not exactly one disk") {
			t.Errorf("%s: %+v", where, r)
		}
		if got := decode[report](t, u.do("image", "inspect", ref, "--path", "b", "-o", "json")); got.Path != "/disk/b" {
			t.Errorf("%s: with a path: %+v", where, got)
		}
	}
	check("in the registry")
	u.wantNothingSince(t, before)
	if _, err := u.n.Crictl(t.Context(), "pull", ref); err != nil {
		t.Fatal(err)
	}
	before = u.census(t)
	check("on the node")
	u.wantNothingSince(t, before)
	if r := u.try("image", "inspect", u.n.RegistryAddress()+"/absent:1"); r.code != 1 || !strings.Contains(r.err, "is the name right") {
		t.Errorf("an absent image: %+v", r)
	}
}
