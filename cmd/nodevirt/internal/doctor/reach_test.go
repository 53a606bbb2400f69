package doctor

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
)

// TestReachWithoutTable: a table of another range of users is none.
func TestReachWithoutTable(t *testing.T) {
	c := config.Default()
	c.VM.UIDBase = 4_000_000_000
	if f := checkReach(t.Context(), c); f.Level != Warn || !strings.Contains(f.Remedy, "nodevirt-shim") {
		t.Errorf("without the table: %+v", f)
	}
}
