//go:build slow

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

const savedVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}, {"name": "data", "emptyDisk": {"capacity": "64Mi"}}]
}`

// savedPod runs a pod like the one that was saved.
func savedPod(t *testing.T, name string) *pod {
	t.Helper()
	return vmPod(t, named(name), annotated(map[string]string{"nodevirt.io/vmi": savedVMI}))
}

func savedConfig(p *pod, image string) *runtimeapi.ContainerConfig {
	config := p.vmConfig(image)
	config.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
	return config
}

func (c *container) save(location string) error {
	_, err := suite.cri.CheckpointContainer(c.t.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: c.id, Location: location})
	return err
}

func (c *container) sh(line string) string {
	c.t.Helper()
	return strings.TrimSpace(string(c.exec("sh", "-c", line).Stdout))
}

// count returns how far a process of the guest has counted in memory.
func (c *container) count() int {
	c.t.Helper()
	n := 0
	wait.Until(c.t, "the guest counts", func() bool {
		var err error
		n, err = strconv.Atoi(c.sh("cat /tmp/count")) // it is being written
		return err == nil
	})
	return n
}

// TestCheckpoint saves a guest, which goes on. Other containers go on where it was: with its
// memory, its processes and its disks, from an archive and from an image.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	p := savedPod(t, "saved")
	c := p.create(savedConfig(p, suite.agent)).start().up()
	c.agentIs(agent.Present)
	boot, address := c.sh("cat /proc/sys/kernel/random/boot_id"), c.sh("ip -4 -o addr show eth0 | sed 's:/.*::'")
	c.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null; " +
		"dd if=/tmp/r of=/dev/vda bs=512 seek=1500 count=100 conv=fsync 2>/dev/null")
	c.sh("(i=0; while :; do echo $((i += 1)) >/tmp/count; sleep 0.1; done) >/dev/null 2>&1 &")
	const read = "echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vdb bs=64k skip=100 count=64 2>/dev/null | sha256sum; " +
		"dd if=/dev/vda bs=512 skip=1500 count=100 2>/dev/null | sha256sum"
	content := c.sh(read)
	before := c.count()

	folder := p.config.LogDirectory // of the node, and of this test
	location := filepath.Join(folder, "checkpoint.tar")
	assert.NilError(t, c.save(location))
	info, err := os.Stat(location)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode(), os.FileMode(0o600))
	t.Logf("%d KiB", info.Size()>>10)
	_, err = os.Stat(location + ".partial")
	assert.ErrorIs(t, err, os.ErrNotExist)
	if err := c.save(location); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the same file again: %v", err)
	}

	// The guest goes on, and writes something else.
	c.sh("dd if=/dev/zero of=/dev/vdb bs=64k seek=100 count=64 conv=fsync 2>/dev/null; dd if=/dev/zero of=/dev/vda bs=512 seek=1500 count=100 conv=fsync 2>/dev/null")
	wait.Until(t, "it goes on", func() bool { return c.count() > before+100 })
	changed := c.sh(read)
	assert.Assert(t, changed != content)

	check := func(t *testing.T, r *container, content string) {
		t.Helper()
		r.agentIs(agent.Present)
		if n, now := r.count(), c.count(); n < before || n >= now {
			t.Errorf("the guest has counted to %d, from %d when it was saved; the saved one has come to %d", n, before, now)
		}
		assert.Equal(t, r.sh("cat /proc/sys/kernel/random/boot_id"), boot)
		assert.Equal(t, r.sh("ip -4 -o addr show eth0 | sed 's:/.*::'"), address)
		assert.Equal(t, r.sh(read), content)
		n := r.count()
		wait.Until(t, "its processes run", func() bool { return r.count() > n })
		assert.Equal(t, c.sh(read), changed)
	}
	t.Run("archive", func(t *testing.T) {
		p := savedPod(t, "r")
		r := p.create(savedConfig(p, location)).start()
		check(t, r, content)
		// It is a VM like others: it can be saved itself.
		again := filepath.Join(folder, "again.tar")
		assert.NilError(t, r.save(again))
		assert.NilError(t, os.Remove(again))
		r.stop(0)
	})
	t.Run("image", func(t *testing.T) {
		disk, err := guest.TinyWithAgent(t.Context(), suite.GuestOptions())
		assert.NilError(t, err)
		ref, err := pushDisk(t.Context(), "checkpoint:1", disk, images.DiskOptions{Above: [][]images.File{extract(t, location)}})
		assert.NilError(t, err)
		assert.NilError(t, pull(t.Context(), ref))
		p := savedPod(t, "r")
		check(t, p.create(savedConfig(p, ref)).start(), content)
	})
	t.Run("pod", func(t *testing.T) { check(t, c.savedAsPod(t), changed) })
	t.Run("refused", func(t *testing.T) {
		whole, err := os.ReadFile(location)
		assert.NilError(t, err)
		bad := filepath.Join(folder, "bad.tar")
		p := savedPod(t, "r")
		refused := func(name string, data []byte, words string) {
			t.Helper()
			assert.NilError(t, os.WriteFile(bad, data, 0o600))
			_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(savedConfig(p, bad)))
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", name, err)
			}
		}
		refused("cut off", whole[:len(whole)/2], "ends behind the archive's end")
		flipped := bytes.Clone(whole)
		flipped[len(flipped)/2] ^= 1
		refused("a byte changed", flipped, "unusable checkpoint")
		refused("foreign machine", bytes.Replace(whole, []byte(`"accelerator": "tcg"`), []byte(`"accelerator": "kvm"`), 1), "its guest ran on")
		assert.NilError(t, os.Remove(bad))

		config := savedConfig(p, location)
		config.Linux.Resources.MemoryLimitInBytes = 512 * mebibyte
		other := p.create(config)
		_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: other.id})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "memory is") {
			t.Errorf("more memory: %v", err)
		}
	})
	assert.NilError(t, os.Remove(location))
}

// savedAsPod checkpoints the guest's whole pod, and restores it as another one.
func (c *container) savedAsPod(t *testing.T) *container {
	folder := filepath.Join(c.pod.config.LogDirectory, "pod")
	assert.NilError(t, os.Mkdir(folder, 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	p := podOf(t, "vm", sized, named("r"), annotated(map[string]string{"nodevirt.io/vmi": savedVMI}))
	config := savedConfig(p, suite.agent)
	restore := &runtimeapi.RestorePodRequest{
		CheckpointPath: folder, Config: p.config, RuntimeHandler: "vm", ContainerConfigs: []*runtimeapi.ContainerConfig{config},
	}
	_, err := suite.cri.RestorePod(ctx, restore)
	assert.Equal(t, status.Code(err), codes.InvalidArgument, "%v", err)

	save := &runtimeapi.CheckpointPodRequest{PodSandboxId: c.pod.id, OutputPath: folder, ContainerIds: []string{c.id, "side"}}
	_, err = suite.cri.CheckpointPod(ctx, save)
	assert.Equal(t, status.Code(err), codes.Unimplemented, "%v", err)
	save.ContainerIds = []string{c.id}
	_, err = suite.cri.CheckpointPod(ctx, save)
	assert.NilError(t, err)
	_, err = suite.cri.CheckpointPod(ctx, save)
	assert.Equal(t, status.Code(err), codes.InvalidArgument, "%v", err)

	config.Linux.Resources.MemoryLimitInBytes = -1 // then nothing of the pod remains
	_, err = suite.cri.RestorePod(ctx, restore)
	assert.Assert(t, err != nil)
	pods, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	assert.NilError(t, err)
	for _, one := range pods.Items {
		assert.Assert(t, one.Metadata.Name != p.config.Metadata.Name, "pod %s remains", one.Id)
	}
	config.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
	made, err := suite.cri.RestorePod(ctx, restore)
	assert.NilError(t, err)
	p.id = made.PodSandboxId
	t.Cleanup(p.remove)
	assert.Equal(t, len(made.RestoredContainers), 1)
	assert.Equal(t, made.RestoredContainers[0].Name, config.Metadata.Name)
	r := &container{pod: p, id: made.RestoredContainers[0].ContainerId, config: config}
	assert.Equal(t, r.status().State, runtimeapi.ContainerState_CONTAINER_CREATED)
	assert.NilError(t, os.RemoveAll(folder))
	return r.start()
}

// extract returns the files of an archive.
func extract(t *testing.T, path string) []images.File {
	t.Helper()
	all, err := images.Extract(path, t.TempDir())
	assert.NilError(t, err)
	return all
}
