package guest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
)

// TestDisplayIsQEMUs: a guest that has broken out of QEMU could replace its socket by
// a link to another one.
func TestDisplayIsQEMUs(t *testing.T) {
	dir, err := os.MkdirTemp("", "display-") // t.TempDir's paths are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	other := filepath.Join(dir, "other")
	l, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := &Guests{layout: layout.Layout{Displays: dir}}
	r := record.Container{ID: "vm"}
	if err := os.Mkdir(g.layout.DisplayDir(r.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, g.layout.DisplaySocket(r.ID)); err != nil {
		t.Fatal(err)
	}
	r.Domain.UID = uint32(os.Getuid()) + 1
	if conn, err := g.dialDisplay(r); err == nil || !strings.Contains(err.Error(), "not QEMU's") {
		t.Errorf("%v, %v", conn, err)
	}
	r.Domain.UID = uint32(os.Getuid())
	conn, err := g.dialDisplay(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
