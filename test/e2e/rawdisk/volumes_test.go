package rawdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/hold"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// volume is one that becomes a registry disk.
type volume struct {
	path  string // of the disk: a device, or a file in a folder
	mount func(*runtimeapi.ContainerConfig)
}

func folderVolume(t *testing.T) volume {
	t.Helper()
	dir := filepath.Join(suite.Dir(), "volume")
	assert.NilError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
	return volume{filepath.Join(dir, "disk.img"), func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: dir}}
	}}
}

func deviceVolume(t *testing.T, size int64) volume {
	t.Helper()
	device := loopfs.Device(t, size)
	return volume{device, func(c *runtimeapi.ContainerConfig) {
		c.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/root", HostPath: device, Permissions: "mrw"}}
	}}
}

// look returns what a volume is, and how many bytes of it its note says are written.
func (v volume) look(t *testing.T) (disk bool, done int64) {
	t.Helper()
	f, err := os.Open(v.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, 0
	}
	assert.NilError(t, err)
	defer f.Close()
	disk, done, err = persist.Look(f)
	assert.NilError(t, err)
	return disk, done
}

// bigDisk pushes a disk whose data are written in three parts, and returns its raw twin.
func bigDisk(t *testing.T) (image, raw string, size int64) {
	t.Helper()
	size = 600 * mebibyte
	raw = filepath.Join(t.TempDir(), "raw")
	f, err := os.Create(raw)
	assert.NilError(t, err)
	assert.NilError(t, f.Truncate(size))
	_, err = f.WriteAt(guest.BootSector("from the volume", guest.Halt), 0)
	assert.NilError(t, err)
	for at := int64(mebibyte); at < size; at += mebibyte {
		_, err := f.WriteAt(bytes.Repeat(fmt.Appendf(nil, "%16d", at), mebibyte/16), at)
		assert.NilError(t, err)
	}
	assert.NilError(t, f.Close())
	disk := raw + ".qcow2"
	out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", raw, disk).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	image, err = suite.Push(t.Context(), "volume:1", img)
	assert.NilError(t, err)
	_, err = suite.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	assert.NilError(t, err)
	return image, raw, size
}

// TestAVolumeAndKills: the shim is killed in each part of a volume's writing, and goes on where it
// was; when it is killed under the running VM, the volume stays this one's.
func TestAVolumeAndKills(t *testing.T) {
	image, raw, size := bigDisk(t)
	for name, newVolume := range map[string]func(*testing.T) volume{
		"folder": folderVolume,
		"device": func(t *testing.T) volume { t.Helper(); return deviceVolume(t, size) },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(t)
			p := runPod(t, "volume", onVolume)
			v.killedFirst(t, p, image)
			id := ""
			for done := int64(0); id == ""; {
				id = v.killedBeyond(t, p, image, done)
				disk, now := v.look(t) // a disk that is complete does not say how much is written
				if id == "" && !disk && now < done {
					t.Fatalf("%d bytes were written, now it is %d", done, now)
				}
				done = now
			}
			_, err := suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
			assert.NilError(t, err)
			wait.Success(t, "the guest to boot from its volume", func(context.Context) error { return p.says("from the volume") })
			out, err := exec.CommandContext(t.Context(), "cmp", "-n", fmt.Sprint(size), raw, v.path).CombinedOutput()
			if err != nil {
				t.Errorf("the volume is not the disk: %s", out)
			}
			assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
			assert.NilError(t, suite.Resume(t.Context(), node.Shim))
			other := runPod(t, "other", onVolume)
			if _, err := other.create(t.Context(), image, v.mount); err == nil || !strings.Contains(err.Error(), "the volume is in use by another VM") {
				t.Errorf("a second VM on the volume: %v", err)
			}
		})
	}
}

func onVolume(c *runtimeapi.PodSandboxConfig) {
	c.Annotations = map[string]string{vmspec.AnnotationDiskOrigin: "root=disk"}
}

// killedFirst has the shim killed when a create has come to qemu-nbd.
func (v volume) killedFirst(t *testing.T, p *pod, image string) {
	t.Helper()
	release, answer := hold.Held(t, suite.convert, func() error {
		_, err := p.create(t.Context(), image, v.mount)
		return err
	})
	defer release()
	if disk, done := v.look(t); disk || done > 0 {
		t.Errorf("before qemu-nbd runs %d bytes are written; a disk: %t", done, disk)
	}
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	release()
	if err := <-answer; err == nil {
		t.Error("a create whose shim was killed has answered")
	}
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
}

// killedBeyond has the shim killed as soon as a create has written more than done bytes. It returns the container
// if the create was faster.
func (v volume) killedBeyond(t *testing.T, p *pod, image string, done int64) (id string) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		var err error
		id, err = p.create(t.Context(), image, v.mount)
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			assert.NilError(t, err)
			return id
		case <-time.After(time.Millisecond):
		}
		if _, now := v.look(t); now > done {
			break
		}
	}
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	<-ended
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	return id
}

// says looks for a word on the pod's console.
func (p *pod) says(word string) error {
	log, err := os.ReadFile(filepath.Join(p.config.LogDirectory, "vm_0.log"))
	if err == nil && !strings.Contains(string(log), word) {
		err = fmt.Errorf("the guest says %q", log)
	}
	return err
}
