package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestRun: the program says what it is for, and starts nothing without a QEMU beside its link.
func TestRun(t *testing.T) {
	if err := run([]string{"nodevirt-qemu", "-version"}, nil); !errors.Is(err, errUsage) {
		t.Errorf("by hand: %v", err)
	}
	if err := run([]string{filepath.Join(t.TempDir(), "nodevirt-qemu")}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no QEMU: %v", err)
	}
}
