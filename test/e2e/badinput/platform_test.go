package badinput

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
)

// platformCases are sound disks of images for other machines, which containerd pulls where there
// is no other to choose.
func platformCases() []badCase {
	labelled := func(name, system, architecture string) badCase {
		return badCase{
			name: name, at: atCreate, code: codes.InvalidArgument, files: soundDisk(),
			image: func(t *testing.T, img v1.Image) v1.Image { return relabelled(t, img, system, architecture) },
		}
	}
	return []badCase{
		labelled("another architecture", "linux", "arm64"),
		labelled("another system", "windows", "amd64"),
		labelled("an architecture with quotes", "linux", "\"\x1b[31m'<&"),
		{name: "index without our platform", at: atPull, code: codes.NotFound, push: pushForOthers},
	}
}

// relabelled is an image whose config says that it is for other machines.
func relabelled(t *testing.T, img v1.Image, system, architecture string) v1.Image {
	t.Helper()
	file, err := img.ConfigFile()
	assert.NilError(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture = system, architecture
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	return img
}

// pushForOthers pushes an index that has images for other machines only.
func pushForOthers(t *testing.T, s *suite) (ref string) {
	t.Helper()
	var others []mutate.IndexAddendum
	for _, arch := range []string{"arm64", "s390x"} {
		others = append(others, mutate.IndexAddendum{
			Add:        relabelled(t, imageOf(t, soundDisk()), "linux", arch),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return s.pushIndex(t, "for-others", mutate.AppendManifests(empty.Index, others...))
}
