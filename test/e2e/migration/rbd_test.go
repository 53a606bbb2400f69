//go:build ceph

package migration

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/ceph"
)

// TestRBDMoves: a guest keeps a disk that is an RBD image.
func TestRBDMoves(t *testing.T) {
	a, b := newNodesWith(t, withNetworkDisks(firstAddress+"/32"))
	c := ceph.ForTestAt(t, a.Node, firstAddress)
	blank := filepath.Join(t.TempDir(), "blank.raw")
	assert.NilError(t, os.WriteFile(blank, nil, 0o600))
	assert.NilError(t, os.Truncate(blank, 64<<20))
	assert.NilError(t, c.Import(t.Context(), "moved", "raw", blank))
	keepsNetworkDisk(t, a, b,
		vmspec.NetworkDisk{RBD: &vmspec.RBDVolume{Monitors: []string{c.Address()}, Pool: ceph.Pool, Image: "moved", User: ceph.User}},
		map[string]string{"key": c.Key})
}
