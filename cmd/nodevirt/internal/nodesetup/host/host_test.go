package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStop: a unit that does not exist cannot be stopped, and does not run.
func TestStop(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, tt := range map[string]struct {
		script string
		fails  bool
	}{
		"stopped":        {"exit 0", false},
		"does not exist": {"exit 5", false},
		"runs on":        {`[ "$1" = is-active ] && exit 0; exit 1`, true},
	} {
		script := "#!/bin/sh\n" + tt.script + "\n"
		if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := (Host{}).Stop(t.Context(), "x.service"); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}
