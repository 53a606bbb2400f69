package budget_test

import (
	"errors"
	"testing"

	"github.com/nodevirt/nodevirt/internal/budget"
)

// TestShares: one tenant reaches its share, and leaves the rest to others.
func TestShares(t *testing.T) {
	b := budget.New("bytes", 10, 6)
	greedy, neighbour := b.Grant("greedy"), b.Grant("neighbour")
	taken := 0
	for greedy.Grow(1) == nil {
		taken++
	}
	if taken != 6 {
		t.Errorf("one tenant got %d of 10 bytes, and its share is 6", taken)
	}
	if err := neighbour.Grow(4); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	if err := neighbour.Grow(1); !errors.Is(err, budget.ErrFull) {
		t.Errorf("more than all may have: %v", err)
	}
	greedy.Release()
	greedy.Release()
	if err := neighbour.Grow(2); err != nil || b.Used() != 6 {
		t.Errorf("after a release: %v, %d used", err, b.Used())
	}
	neighbour.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes are left", b.Used())
	}
}
