package control

import (
	"math"
	"slices"
)

// buckets are the upper limits, in seconds, of KubeVirt's histogram
// kubevirt_vmi_phase_transition_time_from_creation_seconds.
func buckets() []float64 {
	return []float64{0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}
}

// histogram counts samples up to each of the limits, as Prometheus does. The last count is of all.
func histogram(limits, samples []float64) []int {
	counts := make([]int, len(limits)+1)
	for _, s := range samples {
		first, _ := slices.BinarySearch(limits, s)
		for i := first; i < len(counts); i++ {
			counts[i]++
		}
	}
	return counts
}

// quantile estimates as Prometheus' histogram_quantile: it takes a bucket's samples for evenly spread, and
// returns the highest limit for one beyond it. Without samples it is not a number.
func quantile(q float64, limits []float64, counts []int) float64 {
	all := counts[len(counts)-1]
	if all == 0 {
		return math.NaN()
	}
	rank := q * float64(all)
	at := slices.IndexFunc(counts, func(n int) bool { return float64(n) >= rank })
	if at == len(limits) {
		return limits[at-1]
	}
	start, before := 0.0, 0
	if at > 0 {
		start, before = limits[at-1], counts[at-1]
	}
	return start + (limits[at]-start)*(rank-float64(before))/float64(counts[at]-before)
}
