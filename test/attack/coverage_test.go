package attack

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestCoverage: each bound of the table has a suite that exceeds it.
func TestCoverage(t *testing.T) {
	var want []string
	for _, b := range bounds.Table() {
		want = append(want, b.What)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(where()))); diff != "" {
		t.Errorf("name the suite of each bound: (-table +suites)\n%s", diff)
	}
}
