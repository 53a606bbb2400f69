package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain/landlock"
)

// TestReachWithoutTable: a table of another range of users is none.
func TestReachWithoutTable(t *testing.T) {
	c := config.Default()
	c.VM.UIDBase = 4_000_000_000
	if f := checkReach(t.Context(), c); f.Level != Warn || !strings.Contains(f.Remedy, "nodevirt-shim") {
		t.Errorf("without the table: %+v", f)
	}
}

// TestConfiner: the packages have the command and the shim's programs in two folders.
func TestConfiner(t *testing.T) {
	bin, libexec := t.TempDir(), t.TempDir()
	if got, want := confiner(bin, libexec), filepath.Join(bin, landlock.Name); got != want {
		t.Errorf("without the program: %s; want %s", got, want)
	}
	for _, dir := range []string{libexec, bin} {
		want := filepath.Join(dir, landlock.Name)
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := confiner(bin, libexec); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}
