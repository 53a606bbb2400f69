//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/loopfs"
)

// ephemeralVMI has disks that are ephemeral on a folder and on a device, a host disk with a
// name for one VM, and a shareable disk. They have I/O threads, queues and the blocks of their volumes.
func ephemeralVMI(host string) string {
	return `{
		"domain": {"ioThreadsPolicy": "auto", "resources": {"requests": {"cpu": "2"}}, "devices": {"blockMultiQueue": true, "disks": [
			{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1},
			{"name": "files", "disk": {"bus": "virtio"}, "dedicatedIOThread": true, "cache": "none"},
			{"name": "block", "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}},
			{"name": "host", "disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 512, "physical": 4096}}},
			{"name": "shared", "disk": {"bus": "virtio"}, "shareable": true}
		]}},
		"volumes": [
			{"name": "root", "containerDisk": {"image": "r"}},
			{"name": "files", "ephemeral": {"persistentVolumeClaim": {"claimName": "files"}}},
			{"name": "block", "ephemeral": {"persistentVolumeClaim": {"claimName": "block"}}},
			{"name": "host", "hostDisk": {"path": "/srv/` + host + `.img", "type": "DiskOrCreate", "capacity": "3Mi"}},
			{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
		]}`
}

// TestEphemeralVolumes: two guests write to disks on the same volumes at the same time. Each sees what it
// wrote itself, the volumes stay as they were, and a new container starts from them again. Host disks
// keep what a guest wrote. What one guest writes to a shareable disk, the other one reads.
func TestEphemeralVolumes(t *testing.T) {
	t.Parallel()
	file, golden := dataDisk(t, "golden.img", "golden ", 3*mebibyte)
	content, err := os.ReadFile(file)
	assert.NilError(t, err)
	files, hosts, device := filepath.Join(suite.Dir(), "golden"), filepath.Join(suite.Dir(), "hosts"), loopfs.Device(t, 3*mebibyte)
	for _, folder := range []string{files, hosts} {
		assert.NilError(t, os.Mkdir(folder, 0o755))
		t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	}
	assert.NilError(t, os.WriteFile(filepath.Join(files, "disk.img"), content, 0o600))
	assert.NilError(t, os.WriteFile(device, content, 0))
	shared := loopfs.Device(t, 3*mebibyte)
	with := func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/files", HostPath: files, Readonly: true},
			&runtimeapi.Mount{ContainerPath: "/volumes/host", HostPath: hosts})
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/block", HostPath: device, Permissions: "r"},
			&runtimeapi.Device{ContainerPath: "/dev/shared", HostPath: shared, Permissions: "mrw"})
	}
	var pods []*pod
	var vms []*container
	for _, name := range []string{"first", "second"} {
		p := vmPod(t, named(name), annotated(map[string]string{"nodevirt.io/vmi": ephemeralVMI(name)}))
		pods, vms = append(pods, p), append(vms, p.vm(suite.tiny, with).start())
	}
	blank := digestOf(make([]byte, 3*mebibyte))
	written := map[string]string{} // digests of the first VM's disks
	for i, vm := range vms {
		vm.up()
		for disk, want := range map[string]string{"vdb": golden, "vdc": golden, "vdd": blank} {
			if got := vm.disk(disk); got != want {
				t.Errorf("VM %d: %s has the digest %s; want %s", i, disk, got, want)
			}
			if i == 0 {
				written[disk] = vm.write(disk, "the first guest's own")
			}
		}
	}
	for disk, want := range written {
		if got := vms[0].disk(disk); got != want || want == golden {
			t.Errorf("%s has the digest %s; want what was written, %s", disk, got, want)
		}
	}
	if want, got := vms[0].write("vde", "for the other guest"), vms[1].disk("vde"); got != want || got == blank {
		t.Errorf("the other guest reads %s from the shareable disk; want %s", got, want)
	}
	vms[0].stop(60)
	vms[0].removeIt()
	next := pods[0].vm(suite.tiny, with, func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt, c.LogPath = 1, "guest_1.log" }).start().up()
	for disk, want := range map[string]string{"vdb": golden, "vdc": golden, "vdd": written["vdd"]} {
		if got := next.disk(disk); got != want {
			t.Errorf("%s of a new container has the digest %s; want %s", disk, got, want)
		}
	}
	for _, path := range []string{filepath.Join(files, "disk.img"), device} {
		if after, err := os.ReadFile(path); err != nil || digestOf(after) != golden {
			t.Errorf("%s was written, %v", path, err)
		}
	}
}
