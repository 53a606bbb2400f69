package migration

import (
	"slices"
	"testing"

	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// TestDecide goes through all that can be known of both ends, and holds each verdict
// against what must be true of it.
func TestDecide(t *testing.T) {
	var reports []*order.Report
	for _, s := range []string{stateUnknown, stateSending, stateHandedOver, stateLeft, stateKept, stateIncoming, stateTaken, stateRefused} {
		reports = append(reports, &order.Report{State: s}, &order.Report{State: s, Unsettled: true})
	}
	reports = append(reports, nil)
	states := []instances.State{{Running: true}, {Ended: true}, {Ended: true, Vacant: true}, {Ended: true, Migrated: true}, {Ended: true, Refused: true}, {Ended: true, Had: true}, {}}
	verdicts := map[verdict]int{}
	for _, source := range states {
		for _, sourceReport := range reports {
			for _, target := range states {
				for _, targetReport := range reports {
					for _, undone := range []bool{false, true} {
						s, g := end{source, sourceReport}, end{target, targetReport}
						v := decide(s, g, undone)
						verdicts[v]++
						if why := wrong(v, s, g, undone); why != "" {
							t.Errorf("%s: source %+v, target %+v, undone %t: verdict %d", why, s, g, undone, v)
						}
					}
				}
			}
		}
	}
	if len(verdicts) != 6 {
		t.Errorf("verdicts: %v", verdicts)
	}
}

func wrong(v verdict, source, target end, undone bool) string {
	refused := target.is(stateRefused) || target.is(stateUnknown) && undone || target.Vacant || target.Refused
	switch {
	case target.is(stateTaken) && v != succeed:
		return "the target has the guest"
	case v == succeed && !target.is(stateTaken) && !target.Ended:
		return "only the target's word moves a guest that may run"
	case v == resume && !refused:
		return "the target may take the guest"
	case v == resume && !source.is(stateHandedOver):
		return "the source does not ask"
	case v == unsettled && (refused || target.Had):
		return "the cluster knows what became of the guest"
	case v == failed && source.is(stateHandedOver) && !source.Ended:
		return "the guest is paused"
	case v == failed && !refused && !target.Ended && !source.is(stateKept):
		return "the target may take the guest"
	case v == failed && target.is(stateIncoming) && !target.Ended:
		return "the target waits for the guest for ever"
	case v != failed && undone && source.is(stateKept) && target.report == nil && !target.Ended:
		return "a target is waited for that never got the guest"
	case v == await && undone:
		return "nothing would happen"
	}
	return ""
}

// TestPlaces: who begins next.
func TestPlaces(t *testing.T) {
	const critical, user, maintenance = "system-critical", "user-triggered", "system-maintenance"
	for name, tt := range map[string]struct {
		running []string // their source nodes
		pending []string // node:priority, the oldest first
		want    []int    // who has a place
	}{
		"a free cluster":   {nil, []string{"a:", "b:"}, []int{0, 1}},
		"two from a node":  {nil, []string{"a:", "a:", "a:", "b:"}, []int{0, 1, 3}},
		"five at once":     {[]string{"a", "b", "c", "d"}, []string{"e:", "f:"}, []int{0}},
		"a full cluster":   {[]string{"a", "b", "c", "d", "e"}, []string{"f:"}, nil},
		"a busy node":      {[]string{"a", "a"}, []string{"a:" + critical, "b:"}, []int{1}},
		"by priority":      {[]string{"x", "y", "z", "w"}, []string{"a:" + maintenance, "b:" + user, "c:" + critical}, []int{2}},
		"none is a user's": {[]string{"x", "y", "z", "w"}, []string{"a:" + maintenance, "b:"}, []int{1}},
	} {
		all, nodeOf := queue(tt.running, tt.pending)
		var got []int
		for i := range tt.pending {
			if hasPlace(&all[len(tt.running)+i], all, limits{5, 2}, nodeOf) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v have a place, want %v", name, got, tt.want)
		}
	}
}
