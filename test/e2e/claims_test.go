package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	check(t, os.Mkdir(folder, 0o755))
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	for name, with := range map[string]func(*runtimeapi.ContainerConfig){
		"folder": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/claims/root", HostPath: folder})
		},
		"device": func(device string) func(c *runtimeapi.ContainerConfig) {
			return func(c *runtimeapi.ContainerConfig) {
				c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/root", HostPath: device, Permissions: "mrw"})
			}
		}(loopDevice(t, 96*mebibyte)),
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
			created, err := suite.cri.CreateContainer(t.Context(), other.createRequest(config))
			if err == nil {
				_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
			}
			if err == nil || !strings.Contains(err.Error(), inUse) {
				t.Errorf("a second VM on the volume: %v; want %q", err, inUse)
			}
			if created != nil {
				_, err = suite.cri.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: created.ContainerId})
				check(t, err)
			}
			vm.stop(60)
			vm.removeIt()

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

// loopDevice is a block device of zeros.
func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	backing := filepath.Join(t.TempDir(), "backing")
	check(t, os.WriteFile(backing, nil, 0o600))
	check(t, os.Truncate(backing, size))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return device
}

// TestBadVolumes: each is refused by the disk's name, and leaves the volume as it was.
func TestBadVolumes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check(t, os.Symlink("/etc/passwd", filepath.Join(folder, "disk.img")))
	for name, c := range map[string]struct {
		mount  *runtimeapi.Mount
		device string
		want   string
	}{
		"link":        {mount: &runtimeapi.Mount{ContainerPath: "/root", HostPath: folder}, want: "disk.img in it is no file"},
		"no folder":   {mount: &runtimeapi.Mount{ContainerPath: "/root", HostPath: folder + "/none"}, want: "no such file or directory"},
		"no device":   {device: "/dev/null", want: "it is no block device"},
		"gone device": {device: "/dev/nodevirt-none", want: "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := persistent(t, "bad")
			config := p.vmConfig(suite.tiny)
			if c.mount != nil {
				config.Mounts = append(config.Mounts, c.mount)
			} else {
				config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: "/dev/root", HostPath: c.device})
			}
			_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(config))
			if err == nil || !strings.Contains(err.Error(), `disk "root": unusable volume: `) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v\nwant one with %s", err, c.want)
			}
		})
	}
}
