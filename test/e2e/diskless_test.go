package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/deploy/image"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// withoutDisk is a pod as the controller makes it of a VMI whose volumes have no image.
func withoutDisk(t *testing.T, vmi string) *pod {
	t.Helper()
	return vmPod(t, annotated(map[string]string{"nodevirt.io/vm-container": "guest", "nodevirt.io/vmi": vmi}))
}

// TestWithoutADisk runs a VM that has nothing to boot from. Its image is the controller's, as in a
// cluster.
func TestWithoutADisk(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	assert.NilError(t, os.WriteFile(program, []byte("a program of another process"), 0o755))
	img, err := image.Controller(program, "test")
	assert.NilError(t, err)
	ref, err := suite.Push(t.Context(), "nodevirt-controller:test", img)
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))

	c := withoutDisk(t, `{"domain": {"devices": {"autoattachGraphicsDevice": true}}}`).vm(ref).start()
	domain := c.info().VM.Domain.Name
	if text := inNode(t, "virsh", "dumpxml", domain); strings.Contains(text, "<disk ") {
		t.Errorf("the VM has a disk:\n%s", text)
	}
	wait.Until(t, "the firmware to find nothing", func() bool { return strings.Contains(screen(t, domain), "No bootable device") })
	if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %s", s.State)
	}
	c.stop(1)
	c.wantEnd(c.status(), 137, "Error")
	c.removeIt()
}

// screen returns the characters on a display in VGA's text mode, from its memory: each is followed by
// its colours.
func screen(t *testing.T, domain string) string {
	t.Helper()
	var text []byte
	for line := range strings.Lines(inNode(t, "virsh", "qemu-monitor-command", domain, "--hmp", "xp /4000xb 0xb8000")) {
		_, values, _ := strings.Cut(line, ":")
		for i, value := range strings.Fields(values) {
			if n, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 8); err == nil && i%2 == 0 {
				text = append(text, byte(n))
			}
		}
	}
	return string(text)
}

// tinyKernel pulls an image of a name that has the tiny guest's /boot/vmlinuz and /boot/initrd, and no disk.
func tinyKernel(t *testing.T, name string) (ref string) {
	t.Helper()
	k, err := guest.TinyKernel(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	img, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
		{Name: "boot/"}, {Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd},
	}})
	assert.NilError(t, err)
	ref, err = suite.Push(t.Context(), name, img)
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))
	return ref
}

// TestAKernelOfAnotherImage boots a registry disk by a kernel that another image has.
func TestAKernelOfAnotherImage(t *testing.T) {
	t.Parallel()
	kernel := tinyKernel(t, "kernel-beside-disk:1")
	reply, err := suite.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: kernel}})
	assert.NilError(t, err)
	vm := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {
			"firmware": {"kernelBoot": {"kernelArgs": "` + guest.Cmdline + ` e2e.kernel=other", "container": {
				"image": "` + kernel + `", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]}
		},
		"networks": [{"name": "default", "pod": {}}],
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]
	}`})).vm(suite.tiny, mounts(vmspec.KernelPath, reply.GetImage().GetId())).start().up()
	g := vm.guest()
	if !strings.HasSuffix(g.Cmdline, "e2e.kernel=other") || len(g.Disks) != 1 {
		t.Errorf("command line %q, disks %+v", g.Cmdline, g.Disks)
	}
	vm.reboots()
	vm.stop(60)
}
