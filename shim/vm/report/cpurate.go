package report

import (
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// rateSpan is the shortest time that a rate is taken over: shorter ones are
	// noise, as when two clients ask at once.
	rateSpan = time.Second
	// rateAge is how old a sample may be, as for containerd's own.
	rateAge = 2 * time.Minute
)

// cpuSample is CPU time, in ns since the container's start, at a moment.
type cpuSample struct {
	at   time.Time
	used uint64
}

// cpuRate computes a rate from the CPU times that clients asked for. containerd
// samples every second, asked or not; with many VMs that would cost more than
// it is worth.
type cpuRate struct {
	mu           sync.Mutex
	older, newer cpuSample
}

// rate is how much CPU time, in ns a second, was used between an earlier
// sample, or the container's start, and now; nil if the earlier sample is too
// old. The kubelet then computes the rate itself.
func (r *cpuRate) rate(now cpuSample, started time.Time) *runtimeapi.UInt64Value {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := r.newer
	if base.at.IsZero() {
		base.at = started
	}
	// Less than nothing: another shim recorded the start, and then the clock was set back.
	if span := now.at.Sub(base.at); span >= rateSpan || span < 0 {
		r.older, r.newer = base, now
	} else if !r.older.at.IsZero() {
		base = r.older
	}
	span := now.at.Sub(base.at)
	if span < rateSpan || span > rateAge || now.used < base.used {
		return nil
	}
	return value(uint64(float64(now.used-base.used) / span.Seconds()))
}
