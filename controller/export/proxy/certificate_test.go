package proxy

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/controller/certs"
)

// TestCertificateFiles: the proxy serves with the files that the kubelet has written last, and with the
// former ones if they cannot be read.
func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	c := &certificate{folder: dir, log: slog.New(slog.DiscardHandler)}
	if err := c.load(); err == nil {
		t.Error("loaded no files")
	}
	write := func() {
		t.Helper()
		now := time.Now()
		_, cert, key, err := certs.ForServer([]string{"x"}, now, now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.load(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	first, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	write()
	second, err := c.get(nil)
	if err != nil || second.Leaf.Equal(first.Leaf) {
		t.Errorf("the same certificate, %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.load(); err == nil {
		t.Error("loaded an empty key")
	}
	if got, _ := c.get(nil); got != second {
		t.Error("another certificate than the last good one")
	}
}
