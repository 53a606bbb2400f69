package report

import (
	"encoding/json"
	"math"
	"slices"
)

// Series are the samples of one thing, in the order in which they were taken.
type Series struct {
	Of      string    // what was measured, such as "libvirt alone"
	Samples []float64 // in the row's unit
}

// Quantile is the value below which the share q of the samples lies, from 0 to 1, interpolated
// between neighbours. Without samples it is not a number.
func (s Series) Quantile(q float64) float64 {
	if len(s.Samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s.Samples))
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below == len(sorted)-1 {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// Median is the middle sample.
func (s Series) Median() float64 { return s.Quantile(0.5) }

// Add appends a sample.
func (s *Series) Add(sample float64) { s.Samples = append(s.Samples, sample) }

// MarshalJSON adds the figures that the table shows.
func (s Series) MarshalJSON() ([]byte, error) {
	type summary struct {
		Of            string    `json:"of"`
		Median        float64   `json:"median"`
		LowerQuartile float64   `json:"lower_quartile"`
		UpperQuartile float64   `json:"upper_quartile"`
		Samples       []float64 `json:"samples"`
	}
	if len(s.Samples) == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(summary{s.Of, s.Median(), s.Quantile(0.25), s.Quantile(0.75), s.Samples})
}
