package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// testPristine writes to what an image was unpacked to, in each way that must be noticed.
func testPristine(t *testing.T, n *node.Node) {
	img, err := images.FromFiles(v1.Config{},
		images.Layer{Files: []images.File{{Name: "disk/a", Data: make([]byte, 1<<20)}, {Name: "disk/b", Data: []byte("b")}}},
		images.Layer{Files: []images.File{{Name: "disk/a", Data: make([]byte, 1<<19)}}, Compressed: true})
	assert.NilError(t, err)
	ref, err := n.Push(t.Context(), "pristine:1", img)
	assert.NilError(t, err)
	crictl(t, n, "pull", ref)
	was, err := n.Pristine(t.Context())
	if err != nil || was < 3 {
		t.Fatalf("nothing was written: %v; %d files were compared", err, was)
	}
	files, err := filepath.Glob(filepath.Join(n.Dir(), "containerd/*overlayfs/snapshots/*/fs/disk/b"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for name, c := range map[string]struct {
		do   func(path string) error
		undo func(path string) error
		want string
	}{
		"content": {
			func(path string) error { return os.WriteFile(path, []byte("B"), 0) },
			func(path string) error { return os.WriteFile(path, []byte("b"), 0) }, "it differs at 0",
		},
		"size": {
			func(path string) error { return os.Truncate(path, 5) },
			func(path string) error { return os.Truncate(path, 1) }, "it has 5 bytes, and had 1",
		},
		"owner": {
			func(path string) error { return os.Chown(path, 7, 7) },
			func(path string) error { return os.Chown(path, 0, 0) }, "it is 7:7's",
		},
	} {
		assert.NilError(t, c.do(files[0]))
		_, err := n.Pristine(t.Context())
		if err == nil || !strings.Contains(err.Error(), "an image was written: disk/b") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		assert.NilError(t, c.undo(files[0]))
	}
}
