package vm

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
)

// A guest that has broken out of QEMU could put a way to another socket at its own one's place.
func TestADisplayIsQEMUsOwn(t *testing.T) {
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
	m := &Manager{Options: Options{DisplayDir: dir}}
	r := record.Container{ID: "vm"}
	if err := os.Mkdir(m.displayDir(r.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, m.displaySocket(r.ID)); err != nil {
		t.Fatal(err)
	}
	r.Domain.UID = uint32(os.Getuid()) + 1
	if conn, err := m.dialDisplay(r); err == nil || !strings.Contains(err.Error(), "not QEMU's") {
		t.Errorf("%v, %v", conn, err)
	}
	r.Domain.UID = uint32(os.Getuid())
	conn, err := m.dialDisplay(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
