//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestFilesystems restarts the shim meanwhile: it is not parallel. A guest mounts a PVC and a ConfigMap, which stay
// while the shim is away. The VM ends with its virtiofsd.
func TestFilesystems(t *testing.T) {
	disk, err := guest.TinyWithVirtiofs(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	ref, err := pushDisk(t.Context(), "tiny-virtiofs:1", disk, images.DiskOptions{})
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))
	data, config := t.TempDir(), volumeOf(t, "configmap", "config", map[string]string{"key": "old\n"})
	// As the kubelet writes the token of a service account for a container with this user.
	token := filepath.Join(config, "..data", "token")
	assert.NilError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	assert.NilError(t, os.Chown(token, 107, 0))
	assert.NilError(t, os.Symlink("..data/token", filepath.Join(config, "token")))
	vm := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
			"filesystems": [{"name": "data", "virtiofs": {}}, {"name": "config", "virtiofs": {}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "config", "configMap": {"name": "a"}},
			{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]}`,
	})).vm(ref, func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/data", HostPath: data},
			&runtimeapi.Mount{ContainerPath: "/volumes/config", HostPath: config, Readonly: true})
	}).start().up()
	vm.post("/cgi-bin/program", shell)
	says := func(command, want string) {
		t.Helper()
		if got := vm.runs(command + "\n"); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	says("mkdir /data1 /config && mount -t virtiofs data /data1 && mount -t virtiofs config /config && cat /config/key", "old\n")
	says("cat /config/token", "secret\n")
	says("echo written >/data1/file && chown 1000:1001 /data1/file && sync && stat -c %u:%g /data1/file", "1000:1001\n")
	says("touch /config/key", "touch: /config/key: Read-only file system\n")
	text, err := os.ReadFile(filepath.Join(data, "file"))
	assert.NilError(t, err)
	info, err := os.Stat(filepath.Join(data, "file"))
	assert.NilError(t, err)
	if owner := info.Sys().(*syscall.Stat_t); string(text) != "written\n" || owner.Uid != 1000 || owner.Gid != 1001 {
		t.Errorf("the volume has %q of %d:%d", text, owner.Uid, owner.Gid)
	}

	servers := func() []string {
		var found []string
		for line := range strings.Lines(inNode(t, "ps", "-eo", "pid=,uid=,args=")) {
			if strings.Contains(line, "virtiofsd") && strings.Contains(line, vm.id) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	before := servers()
	for _, line := range before {
		if uid, err := strconv.Atoi(strings.Fields(line)[1]); err != nil || uid < 0x72000000 {
			t.Errorf("virtiofsd runs as %s", line)
		}
	}
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, os.WriteFile(filepath.Join(config, "..data", "key"), []byte("newer\n"), 0o600))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	wait.Until(t, "the guest sees the ConfigMap's change", func() bool { return vm.runs("cat /config/key\n") == "newer\n" })
	says("cat /data1/file && echo again >/data1/file && sync", "written\n")
	assert.DeepEqual(t, servers(), before)
	if text, err := os.ReadFile(filepath.Join(data, "file")); err != nil || string(text) != "again\n" {
		t.Errorf("the volume has %q, %v", text, err)
	}

	inNode(t, "kill", "-9", strings.Fields(before[0])[0])
	s := vm.ended()
	vm.wantEnd(s, 137, "Error")
	if !strings.Contains(s.Message, "virtiofsd ended unexpectedly, and the VM was stopped") {
		t.Errorf("message %q", s.Message)
	}
	if left := servers(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	vm.removeIt()
}
