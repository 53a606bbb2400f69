package condition

import "testing"

// TestDeparture: the controller reads what the node has written, and an earlier version's message.
func TestDeparture(t *testing.T) {
	for _, want := range []Departure{
		{Node: "node-b.example.com", Migration: "0a1b-2c"},
		{Migration: "0a1b-2c"},
		{Node: "b", Migration: "0a1b-2c", Unanswered: true},
	} {
		reason := ReasonMigrated
		if want.Unanswered {
			reason = ReasonHandedOver
		}
		if got, ok := ParseDeparture(reason, want.Message()); !ok || got != want {
			t.Errorf("%q: %+v, %t", want.Message(), got, ok)
		}
	}
	if got, ok := ParseDeparture(ReasonMigrated, "the guest runs on another node"); !ok || got != (Departure{}) {
		t.Errorf("an earlier version's: %+v, %t", got, ok)
	}
	if _, ok := ParseDeparture(ReasonCompleted, Departure{Node: "b", Migration: "m"}.Message()); ok {
		t.Error("a power-off is a departure")
	}
}
