package hostcpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
)

// TestIdentify: models and features make a difference, and the speed of the moment makes none.
func TestIdentify(t *testing.T) {
	const own = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\n" +
		"stepping\t: 7\ncpu MHz\t\t: 2100.000\nflags\t\t: fpu vme avx512f\n\nprocessor\t: 1\nvendor_id\t: other\n"
	identify := func(text string) string {
		path := filepath.Join(t.TempDir(), "cpuinfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		is, err := hostcpu.Identify(path)
		if err != nil {
			return err.Error()
		}
		return is
	}
	is := identify(own)
	if !strings.HasPrefix(is, "GenuineIntel 6/85/7, features ") {
		t.Errorf("it is %q", is)
	}
	for change, same := range map[*strings.Replacer]bool{
		strings.NewReplacer("2100", "1200"):                   true,
		strings.NewReplacer("stepping\t: 7", "stepping\t: 6"): false,
		strings.NewReplacer(" avx512f", ""):                   false,
	} {
		if got := identify(change.Replace(own)); (got == is) != same {
			t.Errorf("%q, was %q", got, is)
		}
	}
	if got := identify("processor: 0\n"); !strings.Contains(got, "does not name its vendor") {
		t.Error(got)
	}
	if _, err := hostcpu.Identify("/nonexistent"); err == nil {
		t.Error("a missing file is no error")
	}
}
