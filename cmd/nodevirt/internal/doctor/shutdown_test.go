package doctor

import "testing"

// TestGuestsShutDown: a service that does not run asks no guest to shut down.
func TestGuestsShutDown(t *testing.T) {
	for state, want := range map[string]Level{"active": OK, "inactive": Warn, "failed": Warn, "": Warn} {
		if f := guestsShutDown(state); f.Level != want || (f.Remedy == "") != (want == OK) {
			t.Errorf("%q: %+v", state, f)
		}
	}
}
