package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
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

// TestDamagedSeed: QEMU takes an empty file for an empty CD-ROM, and the guest starts without its data.
func TestDamagedSeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed.iso")
	i := isoDisk{files: folders{containers: func(string) string { return filepath.Dir(path) }}, name: func(Disk) string { return "seed.iso" }}
	for size, want := range map[int]error{0: ErrDamaged, 1 << 16: nil} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := i.attach(t.Context(), Disk{})
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v", size, err)
		}
		for _, group := range files {
			group[0].Close()
		}
	}
}
