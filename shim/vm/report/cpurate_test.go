package report

import (
	"testing"
	"time"
)

func TestCPURate(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds float64, used uint64) cpuSample {
		return cpuSample{start.Add(time.Duration(seconds * float64(time.Second))), used}
	}
	const none = ^uint64(0)
	for _, c := range []struct {
		name  string
		asked []cpuSample
		want  uint64 // of the last; ns a second
	}{
		{"too early", []cpuSample{at(0.5, 5e8)}, none},
		{"since the start", []cpuSample{at(2, 1e9)}, 5e8},
		{"since the last", []cpuSample{at(2, 1e9), at(4, 5e9)}, 2e9},
		{"two clients at once", []cpuSample{at(2, 1e9), at(4, 5e9), at(4.001, 5e9)}, 1999000499},
		{"found again late", []cpuSample{at(3600, 1e9)}, none},
		{"asked seldom", []cpuSample{at(2, 1e9), at(3600, 2e9)}, none},
		{"asked again", []cpuSample{at(3600, 1e9), at(3602, 3e9)}, 1e9},
		{"counted backwards", []cpuSample{at(2, 1e9), at(4, 5e8)}, none},
		{"clock set back since the start", []cpuSample{at(-3600, 1e9), at(-3598, 2e9)}, 5e8},
		{"clock set forward since the start", []cpuSample{at(86400, 1e9), at(86402, 2e9)}, 5e8},
		{"idle", []cpuSample{at(2, 1e9), at(4, 1e9)}, 0},
	} {
		var r cpuRate
		got := none
		for _, s := range c.asked {
			got = none
			if v := r.rate(s, start); v != nil {
				got = v.Value
			}
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
