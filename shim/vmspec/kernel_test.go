package vmspec_test

import (
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestKernelImage: a kernel is in the image that is mounted for it, whatever its name.
func TestKernelImage(t *testing.T) {
	of := func(image, sub string) *runtimeapi.Mount {
		m := &runtimeapi.Mount{ContainerPath: vmspec.KernelPath, Readonly: true, ImageSubPath: sub}
		if image != "" {
			m.Image = &runtimeapi.ImageSpec{Image: image}
		}
		return m
	}
	const kernel = `"firmware": {"kernelBoot": {"container": {"image": "kernel", "kernelPath": "/k"}}}`
	const problem = "container vm: volume mounted at /var/run/nodevirt-kernel: must be an image volume without subPath, for the VM's kernel"
	for name, tt := range map[string]struct {
		domain string
		mount  *runtimeapi.Mount
		image  string
		err    string
	}{
		"an image":    {kernel, of("sha256:1", ""), "sha256:1", ""},
		"a sub path":  {kernel, of("sha256:1", "boot"), "", problem},
		"no image":    {kernel, of("", ""), "", problem},
		"no kernel":   {"", of("sha256:1", ""), "", `nodevirt.io/vmi: spec.domain.firmware.kernelBoot: is not given, and container vm mounts an image for a kernel at /var/run/nodevirt-kernel; remove the volume`},
		"only initrd": {`"firmware": {"kernelBoot": {"container": {"initrdPath": "/k"}}}`, of("sha256:1", ""), "", `nodevirt.io/vmi: spec.domain.firmware.kernelBoot.container.kernelPath: Required value: kernelArgs and initrdPath go with a kernel`},
	} {
		t.Run(name, func(t *testing.T) {
			c := container(nil)
			c.Mounts = append(c.Mounts, tt.mount)
			got, err := vmspec.FromCRI(pod(vmi(least(tt.domain, ``))), c)
			if tt.err != "" {
				checkError(t, err, tt.err)
				return
			}
			assert.NilError(t, err)
			assert.Equal(t, got.KernelImage(), tt.image)
			assert.Assert(t, !got.ImageFiles())
		})
	}
}
