//go:build slow

package e2e

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// TestARM64 boots a guest of arm64, which QEMU translates, by its UEFI firmware.
func TestARM64(t *testing.T) {
	t.Parallel()
	k, err := guest.TinyARM64(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	img, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
		{Name: "boot/"}, {Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd},
	}})
	assert.NilError(t, err)
	ref, err := suite.Push(t.Context(), "arm64-kernel:1", img)
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))

	c := withoutDisk(t, `{
		"architecture": "arm64",
		"domain": {
			"firmware": {"kernelBoot": {"kernelArgs": "`+guest.CmdlineARM64+`", "container": {
				"image": "`+ref+`", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"rng": {}, "autoattachPodInterface": false}
		}
	}`).vm(ref, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 512 * mebibyte
	}).start()
	c.saying("nodevirt guest: up on aarch64")
	c.wantEnd(c.ended(), 0, "Completed")
	c.removeIt()
}
