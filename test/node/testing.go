package node

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/needs"
)

// ForTest starts a node for a test in a new folder, and stops and removes it when the test ends; a
// test that ends badly, or is killed, takes its node along. When the test failed, the ends of the
// node's logs are in its output, and of those of its containers. Dir and Bound of o are set here.
func ForTest(t testing.TB, o Options) *Node {
	t.Helper()
	needs.Parts(t, "a development node")
	// Not t.TempDir: its paths are too long for sockets, and closed to QEMU's uid.
	dir, err := os.MkdirTemp("", "nodevirt-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Bound = dir, true
	n, err := Start(t.Context(), o)
	t.Cleanup(func() { end(t, n, dir) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func end(t testing.TB, n *Node, dir string) {
	// The test's own context has ended by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	if n != nil {
		if t.Failed() {
			for _, name := range []string{Registry, Containerd, Libvirtd, Shim} {
				t.Log(n.LogTail(name, 30))
			}
			for _, path := range n.containerLogs() {
				t.Log(Tail(path, 30))
			}
		} else if err := n.Sound(ctx); err != nil {
			t.Error(err)
		}
		if report := n.race(); report != "" {
			t.Error(report)
		}
		if err := n.Stop(ctx); err != nil {
			t.Errorf("stop node: %v", err)
		}
	}
	if err := Purge(ctx, dir); err != nil {
		t.Errorf("remove node: %v", err)
	}
}
