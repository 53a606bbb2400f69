package program_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/cmd/internal/program"
)

// TestVersion: without a version from the linker there is the module's.
func TestVersion(t *testing.T) {
	if v := program.Version("v1.2.3"); v != "v1.2.3" {
		t.Errorf("%q, want the linker's v1.2.3", v)
	}
	if v := program.Version(""); v == "" {
		t.Error("no version")
	}
}
