package crash

import "testing"

func TestWaits(t *testing.T) { t.Parallel() }

func TestCrashes(t *testing.T) {
	var m map[string]int
	m["nothing"] = 1
}
