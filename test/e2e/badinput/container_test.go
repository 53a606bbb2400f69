package badinput

import (
	"archive/tar"
	"testing"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
)

func memory(bytes int64) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = bytes }
}

// containerCases are wrong in what the container asks for.
func containerCases() []badCase {
	return []badCase{
		{
			name: "VM in a pod of the host's network", at: atCreate, pod: hostNetwork, code: codes.InvalidArgument,
		},
		{
			name: "no memory limit", at: atCreate, container: memory(0), code: codes.InvalidArgument,
		},
		{
			name: "too little memory", at: atCreate, container: memory(mebibyte / 2), code: codes.InvalidArgument,
		},
		{
			name: "too many processors", at: atCreate, code: codes.InvalidArgument,
			container: func(c *runtimeapi.ContainerConfig) {
				c.Linux.Resources.CpuPeriod, c.Linux.Resources.CpuQuota = 100_000, 100_000_000
			},
		},
		{
			name: "guest memory over the limit", at: atCreate, pod: vmi(`"memory":{"guest":"64Mi"}`, ""),
			code: codes.InvalidArgument,
		},
		{
			name: "another memory limit", at: atCreate, pod: vmi(`"resources":{"limits":{"memory":"64Mi"}}`, ""),
			code: codes.InvalidArgument,
		},
		{
			name: "kernel that is not in the image", at: atCreate, code: codes.InvalidArgument,
			pod: vmi(`"firmware":{"kernelBoot":{"container":{"kernelPath":"/boot/vmlinuz"}}}`, ""),
		},
		{
			name: "kernel that leaves the image", at: atCreate, code: codes.InvalidArgument,
			pod:   vmi(`"firmware":{"kernelBoot":{"container":{"kernelPath":"/boot/vmlinuz"}}}`, ""),
			files: append(soundDisk(), images.File{Name: "boot/vmlinuz", Link: "../../etc/shadow"}),
		},
		{
			name: "initrd that is a device", at: atCreate, code: codes.InvalidArgument,
			pod: vmi(`"firmware":{"kernelBoot":{"container":{"kernelPath":"/vmlinuz","initrdPath":"/dev/mem"}}}`, ""),
			files: append(soundDisk(), images.File{Name: "vmlinuz", Data: []byte("kernel")},
				images.File{Name: "dev/mem", Type: tar.TypeChar}),
		},
		{
			name: "kernel of another image", at: atCreate, code: codes.InvalidArgument,
			pod: vmi(`"firmware":{"kernelBoot":{"container":{"image":"other","kernelPath":"/boot/vmlinuz"}}}`, ""),
		},
		{
			name: "a path where the image has no file", at: atCreate, code: codes.InvalidArgument, pod: vmiAt("/other/disk.img"),
		},
		{
			name: "image that was not pulled", at: atCreate, absent: true,
			files: []images.File{{Name: "disk", Data: make([]byte, 1024)}}, code: codes.NotFound,
		},
		{
			name: "image that is no name", at: atCreate, code: codes.NotFound,
			container: func(c *runtimeapi.ContainerConfig) { c.Image.Image = "UPPER CASE" },
		},
		{
			name: "second VM", at: atCreate, code: codes.FailedPrecondition,
			before: func(t *testing.T, s *suite, p *pod) func() {
				id, err := s.create(t, p, newContainer(s.disk, func(c *runtimeapi.ContainerConfig) {
					c.Metadata.Name = "first"
				}))
				assert.NilError(t, err)
				return func() { s.removeContainer(t, id) }
			},
		},
	}
}
