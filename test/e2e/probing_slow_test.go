//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/loopfs"
)

// TestAQcow2HeaderOnAVolume: a guest writes a qcow2 header to its raw volumes, which names a file of the node as the
// backing file. It stays what the guest wrote: no later VM on the volumes has another size, or the file's content.
func TestAQcow2HeaderOnAVolume(t *testing.T) {
	t.Parallel()
	const size = 3 * mebibyte
	secret, stolen := dataDisk(t, "secret.img", "secret ", 8*mebibyte)
	header := filepath.Join(t.TempDir(), "header.qcow2")
	inNode(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", header)
	text, err := os.ReadFile(header)
	assert.NilError(t, err)
	folder, device := filepath.Join(suite.Dir(), "probed"), loopfs.Device(t, size)
	assert.NilError(t, os.Mkdir(folder, 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	assert.NilError(t, os.WriteFile(filepath.Join(folder, "disk.img"), make([]byte, size), 0o600))
	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1},
			{"name": "files", "disk": {"bus": "virtio"}}, {"name": "block", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "files", "persistentVolumeClaim": {"claimName": "a"}},
			{"name": "block", "persistentVolumeClaim": {"claimName": "b"}}]}`}))
	with := func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/files", HostPath: folder})
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/block", HostPath: device, Permissions: "mrw"})
	}
	content := append(text, make([]byte, max(0, size-len(text)))...)[:size]
	want := digestOf(content)
	first := p.vm(suite.tiny, with).start().up()
	for _, disk := range []string{"vdb", "vdc"} {
		assert.Equal(t, first.write(disk, string(text)), want, "what the guest wrote to %s", disk)
	}
	looks := func(vm *container) {
		t.Helper()
		for _, d := range vm.guest().Disks[1:] {
			if got := vm.disk(d.Name); d.Size != size || got != want || got == stolen {
				t.Errorf("%s has %d bytes, digest %s; want %d, %s", d.Name, d.Size, got, size, want)
			}
		}
		if xml := inNode(t, "virsh", "dumpxml", vm.info().VM.Domain.Name); strings.Contains(xml, secret) {
			t.Errorf("the domain has the backing file:\n%s", xml)
		}
	}
	first.reboots()
	looks(first)
	first.stop(60)
	first.removeIt()
	looks(p.vm(suite.tiny, with, func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt, c.LogPath = 1, "guest_1.log" }).start().up())
}
