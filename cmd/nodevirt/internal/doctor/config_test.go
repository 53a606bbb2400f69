package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
)

// TestReadConfig: a config with which the shim does not start is a failure, and the other checks run.
func TestReadConfig(t *testing.T) {
	for text, want := range map[string]string{
		"[vm]\nmax_disk = 1\n": "fields that there aren't", "listen = \"x\"\n": "not an absolute path", "[vm\n": "config file",
	} {
		path := filepath.Join(t.TempDir(), "shim.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, f := readConfig(path)
		if f.Level != Fail || !strings.Contains(f.Detail, want) || f.Check != "config" || c.Listen != config.Default().Listen {
			t.Errorf("%q: %+v, listen %s", text, f, c.Listen)
		}
	}
	path := filepath.Join(t.TempDir(), "shim.toml")
	if err := os.WriteFile(path, []byte("listen = \"/run/x.sock\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, f := readConfig(path); f.Level != OK || c.Listen != "/run/x.sock" {
		t.Errorf("%+v, listen %s", f, c.Listen)
	}
	if _, f := readConfig(present(path + ".none")); f.Level != OK {
		t.Errorf("no file: %+v", f)
	}
}
