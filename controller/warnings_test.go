package controller

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// TestWarningsOnce: a warning that the API server repeats is logged once, and their number is bounded.
func TestWarningsOnce(t *testing.T) {
	logged := 0
	w := newWarnings(funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	for range 3 {
		w.HandleWarningHeaderWithContext(t.Context(), 299, "", "presets are deprecated")
		w.HandleWarningHeaderWithContext(t.Context(), 299, "", "")
		w.HandleWarningHeaderWithContext(t.Context(), 199, "", "something else")
	}
	if logged != 1 {
		t.Errorf("%d lines of one warning", logged)
	}
	for i := range 2 * maxWarnings {
		w.HandleWarningHeaderWithContext(t.Context(), 299, "", fmt.Sprintf("pod %d", i))
	}
	if logged != maxWarnings {
		t.Errorf("%d lines", logged)
	}
}
