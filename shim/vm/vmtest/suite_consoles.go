package vmtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestConsoles is the suite of consoles' followers.
func TestConsoles(t *testing.T, l lifecycle.Consoles) {
	t.Helper()
	dir := t.TempDir()
	c := console.Console{
		ID: "vm", Raw: filepath.Join(dir, "console"), Position: filepath.Join(dir, "position"), Log: filepath.Join(dir, "log"),
	}
	if err := l.Finish(t.Context(), c.ID); err != nil {
		t.Errorf("finish a console that is not followed: %v", err)
	}
	if err := l.Reopen(c.ID); err == nil {
		t.Error("the log of a console that is not followed was opened again")
	}
	if err := l.Follow(c); err == nil {
		t.Error("a console without a file is followed")
	}
	if err := os.WriteFile(c.Raw, []byte("boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and again after the end: a new shim may not know that it was finished
		for range 2 {
			if err := l.Follow(c); err != nil {
				t.Fatal(err)
			}
		}
		other := c
		other.Log += ".other"
		if err := l.Follow(other); err == nil {
			t.Error("one console has two logs")
		}
		if err := l.Reopen(c.ID); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := l.Finish(t.Context(), c.ID); err != nil {
				t.Error(err)
			}
		}
	}
}
