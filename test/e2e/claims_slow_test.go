//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestASidecarOnTheVMsVolume: a container of the pod that writes to the same volume may spoil the disk, which is
// its own pod's. It has no effect on the running guest, and what it leaves in the disk's place leads the shim and
// QEMU nowhere: not to another file of the node, and into no wait.
func TestASidecarOnTheVMsVolume(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(suite.Dir(), "shared-claim")
	assert.NilError(t, os.Mkdir(folder, 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	secret := filepath.Join(suite.Dir(), "secret.img")
	assert.NilError(t, os.WriteFile(secret, make([]byte, 64*mebibyte), 0o600))
	t.Cleanup(func() { assert.NilError(t, os.Remove(secret)) })

	with := func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/claims/root", HostPath: folder})
	}
	p := persistent(t, "shared")
	vm := p.vm(suite.tiny, with).start().up()
	config := p.newContainer("writer", suite.busybox)
	config.Command, config.Args = []string{"sleep"}, []string{"1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/claim", HostPath: folder})
	writer := p.create(config).start()
	do := func(script string) { crictl(t, "exec", writer.id, "sh", "-c", "cd /claim && "+script) }

	vm.post("/cgi-bin/disk", "kept")
	do("mv disk.img aside && ln -s " + secret + " disk.img")
	if got := vm.page("/cgi-bin/disk"); got != "kept" {
		t.Errorf("the running guest reads %q", got)
	}
	vm.stop(60)
	vm.removeIt()
	for attempt, c := range []struct{ script, want string }{
		{"true", "disk.img in it is not a regular file"}, // the link
		{"rm disk.img && mkfifo disk.img", "disk.img in it is not a regular file"},
		{"rm disk.img && mkdir disk.img", "disk.img in it is not a regular file"},
	} {
		do(c.script)
		config := p.vmConfig(suite.tiny)
		with(config)
		config.Metadata.Attempt = uint32(attempt + 1)
		if _, err := suite.cri.CreateContainer(t.Context(), p.createRequest(config)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %q: got error %v\nwant one with %s", c.script, err, c.want)
		}
	}
	do("rmdir disk.img && mv aside disk.img")
	again := p.vm(suite.tiny, with, func(c *runtimeapi.ContainerConfig) {
		c.Metadata.Attempt, c.LogPath = 9, "guest_9.log"
	}).start().up()
	if got := again.page("/cgi-bin/disk"); got != "kept" {
		t.Errorf("after the sidecar put the disk back, the guest reads %q", got)
	}
}
