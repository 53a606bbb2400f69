package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestDamagedOverlay: after a power cut a file may be empty, cut or overwritten.
func TestDamagedOverlay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	made := qcow2.New{Size: 64 << 20}
	whole := func() {
		f, err := os.Create(path)
		if err == nil {
			err = errors.Join(f.Truncate(made.Length()), made.Fill(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func() error{
		"empty":       func() error { return os.Truncate(path, 0) },
		"truncated":   func() error { return os.Truncate(path, 50) },
		"zeros":       func() error { return os.WriteFile(path, make([]byte, made.Length()), 0o600) },
		"no mappings": func() error { return os.Truncate(path, 1<<16) },
	} {
		whole()
		f, err := openOverlay(path)
		if err != nil {
			t.Fatalf("a whole one: %v", err)
		}
		f.Close()
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		_, err = openOverlay(path)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the container") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDamagedSeed: a seed that a power cut left empty, or that is gone, is written again at the start. QEMU takes an
// empty file for an empty CD-ROM, and the guest would start without its data.
func TestDamagedSeed(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1", vmspec.Disk{Name: "seed", Source: vmspec.SourceSeed})
	if err := n.Maker.Create(t.Context(), r, noProgress); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, "containers", "c1", seedName)
	whole, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(whole, []byte("user-data")) {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	for name, damage := range map[string]func() error{
		"empty":   func() error { return os.Truncate(path, 0) },
		"missing": func() error { return os.Remove(path) },
		"whole":   func() error { return nil },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		files, err := n.Attachments.Attach(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, group := range files {
			if now, err := io.ReadAll(group[0]); err != nil || !bytes.Contains(now, []byte("user-data")) {
				t.Errorf("%s: %d bytes, %v", name, len(now), err)
			}
		}
		if err := closed(files); err != nil {
			t.Error(err)
		}
	}
}
