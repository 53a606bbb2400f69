//go:build ceph

package ceph_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/ceph"
	"github.com/nodevirt/nodevirt/test/node"
)

// TestCluster: an image is the same after both daemons were killed, and nothing is left of the cluster
// but its folder.
func TestCluster(t *testing.T) {
	n := node.ForTest(t, node.Options{Components: []string{node.Registry}})
	before, err := os.ReadDir("/etc/ceph")
	assert.NilError(t, err)
	c, err := ceph.Start(t.Context(), n, t.TempDir())
	if c != nil {
		defer func() { assert.NilError(t, c.Stop(t.Context())) }()
	}
	assert.NilError(t, err)
	if len(c.Key) != 40 {
		t.Errorf("the key has %d characters", len(c.Key))
	}
	content := make([]byte, 8<<20)
	_, _ = rand.Read(content) // it does not fail
	from, to := filepath.Join(t.TempDir(), "from.raw"), filepath.Join(t.TempDir(), "to.raw")
	assert.NilError(t, os.WriteFile(from, content, 0o600))
	assert.NilError(t, c.Import(t.Context(), "disk", "raw", from))
	for _, daemon := range []string{ceph.OSD, ceph.Monitor} {
		assert.NilError(t, n.Kill(t.Context(), daemon, syscall.SIGKILL))
	}
	for _, daemon := range []string{ceph.Monitor, ceph.OSD} {
		assert.NilError(t, n.Resume(t.Context(), daemon))
	}
	_, err = n.Output(t.Context(), "qemu-img", "convert", "-O", "raw", "-f", "raw", c.Drive("disk"), to)
	assert.NilError(t, err)
	read, err := os.ReadFile(to)
	assert.NilError(t, err)
	if !bytes.Equal(read, content) {
		t.Error("the image changed")
	}
	after, err := os.ReadDir("/etc/ceph")
	assert.NilError(t, err)
	if len(after) != len(before) {
		t.Errorf("/etc/ceph holds %v", after)
	}
}
