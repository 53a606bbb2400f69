package criwalk

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// diskImage pushes and pulls an image with a guest that says a line. Like the other one's, its
// container needs no command: a VM can't have one.
func diskImage(ctx context.Context, name, line string) (ref string, err error) {
	sector := filepath.Join(suite.Dir(), line+".img")
	if err := os.WriteFile(sector, guest.BootSector(line, guest.Halt), 0o644); err != nil {
		return "", err
	}
	img, err := images.RegistryDisk(sector, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	return pull(ctx, name, img)
}

// processImage pushes and pulls an image that sleeps, with a label that distinguishes it.
func processImage(ctx context.Context, name, label string) (ref string, err error) {
	busybox, err := images.Busybox(ctx, suite.GuestOptions())
	if err != nil {
		return "", err
	}
	img, err := images.Extend(busybox, v1.Config{
		Entrypoint: []string{"/bin/sleep", "1000000"}, Labels: map[string]string{"criwalk": label},
	})
	if err != nil {
		return "", err
	}
	return pull(ctx, name, img)
}

func pull(ctx context.Context, name string, img v1.Image) (ref string, err error) {
	if ref, err = suite.Push(ctx, name, img); err != nil {
		return "", err
	}
	_, err = suite.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return ref, err
}

// pushDisk and pushProcess are those two for a test that takes its images away.
func pushDisk(t *testing.T, name, line string) string {
	t.Helper()
	ref, err := diskImage(t.Context(), name, line)
	assert.NilError(t, err)
	return ref
}

func pushProcess(t *testing.T, name, label string) string {
	t.Helper()
	ref, err := processImage(t.Context(), name, label)
	assert.NilError(t, err)
	return ref
}
