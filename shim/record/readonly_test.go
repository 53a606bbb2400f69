package record

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/needs"
)

// TestReadOnlyRoot: a shim that starts again serves the VMs that run, and the node's other containers.
func TestReadOnlyRoot(t *testing.T) {
	needs.Parts(t, "root")
	root := t.TempDir()
	assert.NilError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { assert.Check(t, unix.Unmount(root, unix.MNT_DETACH)) })
	_, err := Open(root)
	assert.NilError(t, err)
	assert.NilError(t, os.Chmod(root, 0o755)) // as the tool that mounted it may leave it
	_, err = Open(root)
	assert.NilError(t, err)
	r := Sandbox{ID: NewID()}
	assert.NilError(t, unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	s, err := Open(root)
	assert.NilError(t, err)
	_, err = s.Containers()
	assert.NilError(t, err)
	if err := s.PutSandbox(r); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
}
