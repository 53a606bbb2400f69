package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHostName reports a lookup that takes long, with a getent that hangs.
func TestHostName(t *testing.T) {
	if f := resolves(t.Context(), "localhost"); f.Level != OK {
		t.Errorf("localhost: %+v", f)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte("#!/bin/sh\nexec "+sleep+" 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if f := resolves(t.Context(), "node-1"); f.Level != Warn || f.Remedy == "" {
		t.Errorf("an unreachable name server: %+v", f)
	}
}
