package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
)

func TestReadOnlySocket(t *testing.T) {
	c := config.Default()
	c.Libvirt.Run = t.TempDir()
	if f := checkReadOnlySocket(t.Context(), c); f.Level != OK {
		t.Errorf("without the socket: %+v", f)
	}
	path := filepath.Join(c.Libvirt.Run, "libvirt-sock-ro")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for mode, want := range map[os.FileMode]Level{0o600: OK, 0o660: OK, 0o666: Warn} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if f := checkReadOnlySocket(t.Context(), c); f.Level != want || (want == Warn) != strings.Contains(f.Detail, path) {
			t.Errorf("mode %o: %+v", mode, f)
		}
	}
}
