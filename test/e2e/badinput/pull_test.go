package badinput

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
)

// imageOf makes an image of layers, from the lowest up; those without files are left out.
func imageOf(t *testing.T, files ...[]images.File) v1.Image {
	t.Helper()
	var layers []images.Layer
	for _, f := range files {
		if len(f) > 0 {
			layers = append(layers, images.Layer{Files: f})
		}
	}
	img, err := images.FromFiles(v1.Config{}, layers...)
	assert.NilError(t, err)
	return img
}

// push sends an image to the node's registry.
func (s *suite) push(t *testing.T, name string, img v1.Image) (ref string) {
	t.Helper()
	ref, err := s.n.Push(t.Context(), name+":1", img)
	assert.NilError(t, err)
	return ref
}

// pushIndex sends an index to the node's registry.
func (s *suite) pushIndex(t *testing.T, as string, index v1.ImageIndex) (ref string) {
	t.Helper()
	ref = strings.TrimSuffix(s.disk, "sound:1") + as + ":1"
	to, err := name.ParseReference(ref, name.Insecure)
	if err == nil {
		err = remote.WriteIndex(to, index, remote.WithContext(t.Context()),
			remote.WithTransport(s.n.RegistryTransport()))
	}
	assert.NilError(t, err)
	return ref
}

func (s *suite) pull(t *testing.T, ref string) {
	t.Helper()
	assert.NilError(t, s.tryPull(t, ref))
}

func (s *suite) tryPull(t *testing.T, ref string) error {
	t.Helper()
	_, err := s.imgs.PullImage(t.Context(), &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: ref},
	}, grpc.WaitForReady(true))
	return err
}

// removeImage does it as crictl rmi and the kubelet's garbage collection do.
func (s *suite) removeImage(t *testing.T, ref string) {
	t.Helper()
	_, err := s.imgs.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: ref},
	})
	assert.NilError(t, err)
}

// checkPull pulls an image that containerd refuses.
func (s *suite) checkPull(t *testing.T, c badCase, ref string, answers *answers) {
	t.Helper()
	before := s.census(t)
	undo := c.trouble(t, s, nil)
	answers.check(t, c, s.tryPull(t, ref))
	undo()
	s.awaitNothingSince(t, before)
}
