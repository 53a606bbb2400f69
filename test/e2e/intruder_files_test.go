package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

const uefiDisplayed = `{"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false}}}, "devices": {"autoattachGraphicsDevice": true,
	"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]}},
	"networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "d", "containerDisk": {}}]}`

// TestABrokenQEMUHasNoOtherFile: a process that was started in QEMU's place, with the user and the
// environment of a VM's QEMU, can use its VM's files and no others of the node.
func TestABrokenQEMUHasNoOtherFile(t *testing.T) {
	t.Parallel()
	vm := func(name string) *container {
		return vmPod(t, named(name), annotated(map[string]string{"nodevirt.io/vmi": uefiDisplayed})).vm(suite.tiny).start()
	}
	c, other := vm("first"), vm("second")
	everyone := []string{
		"read /", "read /etc/passwd", "read /etc/hostname", "read /etc/ssl", "read /usr/bin/env", "read /usr/share/doc", "read /tmp",
		"read /proc", "read /proc/1/status", fmt.Sprintf("read /proc/%d/cmdline", other.pid()), "read /proc/version", "read /proc/cmdline", "read /proc/self/net/tcp", "read /proc/self/mounts",
		"read /sys/class/net", "read /run",
		"create /tmp", "create /var/tmp", "create /dev/shm", "write /dev/zero",
	}
	// Its user and system calls alone keep it from none of them.
	mine := c.intruder()
	if got := mine.succeeds(everyone...); !slices.Equal(got, everyone) {
		t.Fatalf("each user can %q of %q", got, everyone)
	}
	owned := func(c *container) []string {
		variables := filepath.Join(suite.Dir(), "nodevirt", "containers", c.id, "uefi-variables")
		return []string{"read " + variables, "write " + variables}
	}
	want := append(owned(c), "read /dev/urandom", "read /usr/lib", "read /proc/self/maps")
	actions := slices.Concat(everyone, owned(other), want)
	for _, dir := range []string{"/etc", "/dev", "/home", "/opt", "/srv", suite.Dir()} {
		actions = append(actions, filesIn(t, dir)...)
	}
	mine.qemu = c.pid()
	can, name := mine.succeeds(actions...), c.info().VM.Domain.Name
	for _, action := range can {
		if !slices.Contains(want, action) && !common(action) && !strings.Contains(action, name[:20]) {
			t.Errorf("a VM's process can %s", action)
		}
	}
	for _, action := range want {
		if !slices.Contains(can, action) {
			t.Errorf("a VM's process can't %s", action)
		}
	}
}

// common reports whether an action is one that each QEMU needs.
func common(action string) bool {
	switch action {
	case "read /etc/ld.so.cache", "read /etc/localtime", "read /etc/ssl/openssl.cnf":
		return true
	}
	return false
}

// inPlaceOfQEMU returns the path of a link to the program that confines QEMU, which starts the given program
// instead.
func inPlaceOfQEMU(t *testing.T, program images.File) string {
	t.Helper()
	dir, err := os.MkdirTemp(suite.Dir(), "intruder-")
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile(program.From)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "qemu"), text, 0o755))
	link := filepath.Join(dir, landlock.Name)
	assert.NilError(t, os.Symlink(filepath.Join(node.Programs, landlock.Name), link))
	return link
}
