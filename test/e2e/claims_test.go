package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

// persistent is a VM's pod whose disk is on the volume that with adds.
func persistent(t *testing.T, suffix string) *pod {
	t.Helper()
	return vmPod(t, named(suffix), annotated(map[string]string{"nodevirt.io/disk-origin": "root=disk"}))
}

// TestAVolumeOutlivesItsVM: a folder and a device become the image's disk, and keep what is written.
func TestAVolumeOutlivesItsVM(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(suite.Dir(), "claim")
	assert.NilError(t, os.Mkdir(folder, 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	for name, with := range map[string]func(*runtimeapi.ContainerConfig){
		"folder": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/claims/root", HostPath: folder})
		},
		"device": func(device string) func(c *runtimeapi.ContainerConfig) {
			return func(c *runtimeapi.ContainerConfig) {
				c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/root", HostPath: device, Permissions: "mrw"})
			}
		}(loopfs.Device(t, 96*mebibyte)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := snapshotFiles(t)
			p := persistent(t, "first")
			vm := p.vm(suite.tiny, with).start().up()
			if got := vm.page("/cgi-bin/disk"); got != "" {
				t.Errorf("a new volume holds %q", got)
			}
			want := int64(64 * mebibyte)
			if name == "device" {
				want = 96 * mebibyte
			}
			if disks := vm.guest().Disks; len(disks) != 1 || disks[0].Size != want {
				t.Errorf("the guest's disks: %+v; want one of %d bytes", disks, want)
			}
			vm.post("/cgi-bin/disk", "kept")

			other := persistent(t, "second")
			config := other.vmConfig(suite.tiny)
			with(config)
			const inUse = "the volume is in use by another VM"
			if _, err := suite.cri.CreateContainer(t.Context(), other.createRequest(config)); status.Code(err) != codes.FailedPrecondition ||
				!strings.Contains(err.Error(), inUse) {
				t.Errorf("a second VM on the volume: %v; want %q", err, inUse)
			}
			vm.stop(60)
			vm.removeIt()
			early, late := other.create(config), persistent(t, "late").vm(suite.tiny, with).start()
			if _, err := suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: early.id}); err == nil ||
				!strings.Contains(err.Error(), inUse) {
				t.Errorf("a second VM's start on the volume: %v; want %q", err, inUse)
			}
			early.removeIt()
			late.up().stop(60)
			late.removeIt()

			next := other.vm(suite.tiny, with, func(c *runtimeapi.ContainerConfig) {
				c.Metadata.Attempt, c.LogPath = 1, "guest_1.log"
			}).start().up()
			if got := next.page("/cgi-bin/disk"); got != "kept" {
				t.Errorf("another VM reads %q from the volume", got)
			}
			if after := snapshotFiles(t); !mapsHold(after, before) {
				t.Errorf("an image was written: before %v, after %v", before, after)
			}
		})
	}
}

// fileSystem is one of a size, in memory, whose top is the volume.
func fileSystem(t *testing.T, name, size string) string {
	t.Helper()
	dir := filepath.Join(suite.Dir(), name)
	assert.NilError(t, os.Mkdir(dir, 0o755))
	inNode(t, "mount", "-t", "tmpfs", "-o", "size="+size, "none", dir)
	t.Cleanup(func() {
		_, err := suite.Output(context.WithoutCancel(t.Context()), "umount", dir)
		assert.NilError(t, errors.Join(err, os.Remove(dir)))
	})
	return dir
}

// TestAVolumeGrows: the disk has the size of a file system that is the volume, and of a larger one later.
func TestAVolumeGrows(t *testing.T) {
	t.Parallel()
	folder := fileSystem(t, "grows", "100m")
	for attempt, want := range []int64{95 * mebibyte, 190 * mebibyte} {
		p := persistent(t, fmt.Sprint(attempt))
		vm := p.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/claims/root", HostPath: folder})
		}).start().up()
		if disks := vm.guest().Disks; len(disks) != 1 || disks[0].Size != want {
			t.Errorf("the guest's disks: %+v; want one of %d bytes", disks, want)
		}
		vm.stop(60)
		vm.removeIt()
		inNode(t, "mount", "-o", "remount,size=200m", folder)
	}
}

// TestBadVolumes: each is refused by the disk's name, and leaves the volume as it was.
func TestBadVolumes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(folder, "disk.img")))
	for name, c := range map[string]struct {
		mount  *runtimeapi.Mount
		device string
		want   string
	}{
		"link":               {mount: &runtimeapi.Mount{ContainerPath: "/root", HostPath: folder}, want: "disk.img in it is not a regular file"},
		"no folder":          {mount: &runtimeapi.Mount{ContainerPath: "/root", HostPath: folder + "/none"}, want: "no such file or directory"},
		"no device":          {device: "/dev/null", want: "it is not a block device"},
		"too small a device": {device: loopfs.Device(t, 2*mebibyte), want: "the disk has 67108864 bytes, and the volume 2097152: use a larger one"},
		"too small a folder": {mount: &runtimeapi.Mount{ContainerPath: "/root", HostPath: fileSystem(t, "small", "8m")},
			want: "the disk has 67108864 bytes, and the volume's file system 8388608: use a larger one"},
		"gone device": {device: "/dev/nodevirt-none", want: "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := persistent(t, "bad")
			config := p.vmConfig(suite.tiny)
			if c.mount != nil {
				config.Mounts = append(config.Mounts, c.mount)
			} else {
				config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: "/dev/root", HostPath: c.device, Permissions: "mrw"})
			}
			_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(config))
			if err == nil || !strings.Contains(err.Error(), `disk "root": unusable volume: `) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v\nwant one with %s", err, c.want)
			}
			if left, _ := os.ReadDir(c.mount.GetHostPath()); len(left) > 1 || len(left) == 1 && left[0].Type() != os.ModeSymlink {
				t.Errorf("on the volume is left %v", left)
			}
		})
	}
}

// TestAVMIOnVolumes: a VMI boots from a PVC in the stub image's place, with a blank disk, and with volumes
// that it only reads and shares with another VM.
func TestAVMIOnVolumes(t *testing.T) {
	t.Parallel()
	folder := func(name string) string {
		dir := filepath.Join(suite.Dir(), "vmi-"+name)
		assert.NilError(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
		return dir
	}
	root, blank, library, device := folder("root"), folder("blank"), folder("library"), loopfs.Device(t, 8*mebibyte)
	tiny, err := guest.Tiny(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	inNode(t, "qemu-img", "convert", "-O", "raw", tiny, filepath.Join(root, "disk.img"))
	assert.NilError(t, os.WriteFile(filepath.Join(library, "disk.img"), make([]byte, 4*mebibyte), 0o600))
	const vmi = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "blank", "disk": {"bus": "virtio"}},
		{"name": "library", "cdrom": {"bus": "scsi"}}, {"name": "block", "disk": {"bus": "virtio"}}]}}, "volumes": [
		{"name": "root", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "blank", "persistentVolumeClaim": {"claimName": "b"}},
		{"name": "library", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "block", "persistentVolumeClaim": {"claimName": "d", "readOnly": true}}]}`
	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": vmi, "nodevirt.io/vm-container": "guest", "nodevirt.io/blank-disks": "blank=16Mi"}))
	readOnly := func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/library", HostPath: library, Readonly: true})
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/block", HostPath: device, Permissions: "r"})
	}
	vm := p.vm(suite.busybox, readOnly, func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/root", HostPath: root},
			&runtimeapi.Mount{ContainerPath: "/volumes/blank", HostPath: blank})
	}).start().up()
	sizes := map[string]int64{}
	for _, d := range vm.guest().Disks {
		sizes[d.Name] = d.Size
	}
	if sizes["vda"] != 64*mebibyte || sizes["vdb"] != 16*mebibyte || sizes["vdc"] != 8*mebibyte {
		t.Errorf("the guest's disks: %v", sizes)
	}
	const second = `{"domain": {"devices": {"disks": [{"name": "library", "cdrom": {"bus": "scsi"}}, {"name": "block", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "library", "persistentVolumeClaim": {"claimName": "c"}},
		{"name": "block", "persistentVolumeClaim": {"claimName": "d", "readOnly": true}}]}`
	other := vmPod(t, named("second"), annotated(map[string]string{"nodevirt.io/vmi": second, "nodevirt.io/vm-container": "guest"}))
	reader := other.vm(suite.busybox, readOnly).start()
	reader.removeIt()
	vm.stop(60)
	vm.removeIt()
}
