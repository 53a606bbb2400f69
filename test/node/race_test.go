package node

import "testing"

// TestFirstRace: a report in a log is found, as far as it goes.
func TestFirstRace(t *testing.T) {
	const report = "WARNING: DATA RACE\nWrite at 0x1 by goroutine 2:\n"
	for log, want := range map[string]string{
		"":                                 "",
		"level=INFO msg=started\n":         "",
		"a\n==================\n" + report: report,
		"a\n==================\n" + report + "==================\nb\n==================\n" + report: report,
	} {
		if got := firstRace(log); got != want {
			t.Errorf("of %q: %q, not %q", log, got, want)
		}
	}
}
