package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestANewContainerGetsAFreshDisk(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	c := p.vm(suite.tiny).start().up()
	pid, address := c.pid(), p.ip()
	if got := c.page("/cgi-bin/disk"); got != "" {
		t.Errorf("a fresh disk holds %q", got)
	}
	c.post("/cgi-bin/disk", "kept")
	c.reboots()
	if got := c.page("/cgi-bin/disk"); got != "kept" {
		t.Errorf("after a reboot the disk holds %q", got)
	}
	if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || c.pid() != pid {
		t.Errorf("after a reboot the container is %s, with process %d after %d", s.State, c.pid(), pid)
	}
	c.stop(60)

	config := p.vmConfig(suite.tiny)
	config.Metadata.Attempt, config.LogPath = 1, "guest_1.log"
	next := p.create(config).start().up()
	if got := next.page("/cgi-bin/disk"); got != "" {
		t.Errorf("the disk of a new container holds %q", got)
	}
	if p.ip() != address {
		t.Errorf("the pod's IP was %s and is %s", address, p.ip())
	}
}

func TestAGuestDoesNotChangeItsImage(t *testing.T) {
	t.Parallel()
	before := snapshotFiles(t)
	if len(before) == 0 {
		t.Fatal("no disk found in containerd's snapshots")
	}
	c := vmPod(t).vm(suite.kernel).start().up()
	c.post("/cgi-bin/disk", "changed")
	if got := c.page("/cgi-bin/disk"); got != "changed" {
		t.Errorf("the disk holds %q", got)
	}
	c.stop(60)
	c.removeIt()
	after := snapshotFiles(t)
	maps.DeleteFunc(after, func(path, _ string) bool { return before[path] == "" }) // of images that came meanwhile
	if !maps.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}

// snapshotFiles are the disks in containerd's snapshots, with owner, mode and digest.
func snapshotFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"disk", "disk/*", "boot/*"} {
		paths, err := filepath.Glob(filepath.Join(suite.Dir(), "containerd/*overlayfs/snapshots/*/fs", pattern))
		assert.NilError(t, err)
		for _, path := range paths {
			info, err := os.Stat(path)
			assert.NilError(t, err)
			if !info.Mode().IsRegular() {
				continue
			}
			owner := info.Sys().(*syscall.Stat_t)
			files[path] = fmt.Sprintf("%d:%d %s %s", owner.Uid, owner.Gid, info.Mode(), digest(t, path))
		}
	}
	return files
}

func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	assert.NilError(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}
