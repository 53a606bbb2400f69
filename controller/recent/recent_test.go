package recent_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/controller/recent"
)

// TestValues: values that are used stay, others go, and the last value of a key counts.
func TestValues(t *testing.T) {
	r := recent.New[int, string](10)
	r.Add(0, "first")
	r.Add(0, "kept")
	r.Add(1, "unused")
	for i := 2; i < 1000; i++ {
		r.Add(i, "other")
		if v, ok := r.Find(0); !ok || v != "kept" {
			t.Fatalf("after %d: %q, %v", i, v, ok)
		}
	}
	if _, ok := r.Find(1); ok {
		t.Error("a value that was not used is still there")
	}
	n := 0
	for i := range 1000 {
		if _, ok := r.Find(i); ok {
			n++
		}
	}
	if n < 10 || n > 20 {
		t.Errorf("%d values, want 10 to 20", n)
	}
}
