package nodeproblems

import (
	"errors"
	"slices"
	"testing"
)

// TestProblems: a problem stays until its end is noted, and each kind has a series of the metric.
func TestProblems(t *testing.T) {
	var p Problems
	if all := p.All(); len(all) != 0 {
		t.Errorf("at first: %v", all)
	}
	p.Set(PodsLost, errors.New("restore its root"))
	p.Set(NoRoomForLibvirtd, errors.New("1 KiB is free"))
	p.Set(NoRoomForLibvirtd, errors.New("make room"))
	want := []Problem{{NoRoomForLibvirtd, "make room"}, {PodsLost, "restore its root"}}
	if all := p.All(); !slices.Equal(all, want) {
		t.Errorf("%v", all)
	}
	for _, one := range p.All() {
		if !slices.Contains(Reasons(), one.Reason) {
			t.Errorf("%s has no metric", one.Reason)
		}
		p.Set(one.Reason, nil)
	}
	if all := p.All(); len(all) != 0 {
		t.Errorf("in the end: %v", all)
	}
}
