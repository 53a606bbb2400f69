package domain

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestKeepVariables: a firmware writes its variables to a file in a folder that QEMU's user can't
// enter, and QEMU keeps the caller's lock of it.
func TestKeepVariables(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	firmware, err := uefi.Find(uefi.Dirs(), uefi.Wanted{Machine: "q35"})
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(firmware.Variables)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "variables")
	if err := os.WriteFile(kept, template, 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t)
	g.UEFI, g.UEFIVariables = &firmware, filepath.Join(filepath.Dir(g.ConsoleLog), "variables")
	g.Spec.Memory, g.Spec.Firmware.UEFI = 128<<20, &vmspec.UEFI{}
	err = errors.Join(os.WriteFile(g.UEFIVariables, template, 0o600), os.Chown(g.UEFIVariables, int(g.UID), int(g.GID)),
		os.Chmod(filepath.Dir(g.ConsoleLog), 0o711))
	if err != nil {
		t.Fatal(err)
	}
	define(t, d, g)
	if _, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, kept, unix.O_RDWR)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := d.Lifecycle.KeepVariables(t.Context(), g.UUID, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := d.Lifecycle.Resume(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	awaitChange(t, kept, template)
	other := openFile(t, kept, unix.O_RDWR)
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("QEMU has lost the lock: %v", err)
	}
	if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock after QEMU's end: %v", err)
	}
	if now, err := os.ReadFile(g.UEFIVariables); err != nil || !bytes.Equal(now, template) {
		t.Errorf("the firmware has written to the file that it started with: %v", err)
	}
}

// awaitChange waits until a file differs from what it was.
func awaitChange(t *testing.T, path string, was []byte) {
	t.Helper()
	for range 6000 {
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(now, was) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the firmware has not written %s", path)
}
