package imageunpack_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
)

func TestAcquireByPlatform(t *testing.T) {
	sound, sidecar := layer{file("disk", pattern(mib))}, layer{file("bin/sh", nil)}
	for i, test := range []struct {
		config v1.ConfigFile
		layer  layer
		want   error
		says   string
	}{
		{v1.ConfigFile{OS: "linux", Architecture: "amd64"}, sound, nil, ""},
		{v1.ConfigFile{OS: "linux", Architecture: "x86_64"}, sound, nil, ""},
		{v1.ConfigFile{}, sound, nil, ""},
		{v1.ConfigFile{OS: "linux", Architecture: "arm64"}, sound, imageunpack.ErrPlatform,
			`it is for "linux/arm64", but this node is linux/amd64`},
		{v1.ConfigFile{OS: "windows", Architecture: "amd64"}, sound, imageunpack.ErrPlatform, "--platform linux/amd64"},
		{v1.ConfigFile{OS: "linux", Architecture: "arm64"}, sidecar, imageunpack.ErrNoDisk, ""},
		{v1.ConfigFile{OS: "linux", Architecture: "amd64", Author: strings.Repeat("a", 9*mib)}, sound, imageunpack.ErrConfig,
			"at most 8388608 are read"},
	} {
		t.Run(fmt.Sprintf("%d", i), func(t *testing.T) {
			n := newNode(t)
			ref := fmt.Sprintf("registry.test/platform:v%d", i)
			n.loadWith(ref, test.config, test.layer)
			_, err := n.Acquire(n.ctx, "owner", ref, "")
			if !errors.Is(err, test.want) {
				t.Fatalf("got error %v, want %v", err, test.want)
			}
			if err != nil && (!strings.Contains(err.Error(), ref) || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %q does not name %s, or doesn't say %q", err, ref, test.says)
			}
			if err == nil {
				n.check(n.Release(n.ctx, "owner"))
			}
			n.wantNothing("in the end")
		})
	}
}

// TestAcquireWithoutContent: an image was removed, or pulled for other machines only, and its name
// is left.
func TestAcquireWithoutContent(t *testing.T) {
	n := newNode(t)
	const ref = "registry.test/nothing:v1"
	_, err := n.client.ImageService().Create(n.ctx, images.Image{Name: ref, Target: ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("gone"), Size: 4,
	}})
	n.check(err)
	t.Cleanup(func() { n.forget(ref) })
	_, err = n.Acquire(n.ctx, "owner", ref, "")
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), ref+`" has nothing for linux/amd64 on this node`) {
		t.Errorf("got error %v", err)
	}
	n.wantNothing("after a refusal")
}

// TestCheckGuest: a disk that is labelled for another architecture than the guest's is refused.
func TestCheckGuest(t *testing.T) {
	for _, tt := range []struct {
		label, guest string
		want         bool
	}{{"", "arm64", true}, {"arm64", "arm64", true}, {"amd64", "arm64", false}, {"arm64", "amd64", false}} {
		err := imageunpack.Disk{Image: "guest:1", Architecture: tt.label}.CheckGuest(tt.guest)
		if (err == nil) != tt.want || err != nil && !errors.Is(err, imageunpack.ErrPlatform) {
			t.Errorf("%q for %s: %v", tt.label, tt.guest, err)
		}
	}
	if err := imageunpack.CheckPlatform("linux", "arm64", "arm64"); err != nil {
		t.Error(err)
	}
}
