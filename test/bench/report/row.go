package report

import (
	"encoding/json"
	"fmt"
	"math"
)

// Kind says what a row's result is.
type Kind string

// The kinds of results.
const (
	Value Kind = "value"      // the median
	Ratio Kind = "ratio"      // the median, divided by that of the baseline
	More  Kind = "difference" // the median of what each round took more than the baseline's
	Turns Kind = "turns"      // the median of what each round's was, divided by its baseline's
)

// Row is one figure: what was measured, and what it is compared with.
type Row struct {
	Name     string
	Unit     string // "ms", "MiB", "%", "s"
	Kind     Kind
	Baseline Series // of a More or Turns with as many samples as Measured; of a Value without any
	Measured Series
	Goal     float64 // the result's limit; 0 where there is none
	AtLeast  bool    // the goal is a lower limit, not an upper one
}

// Result is what the row's kind says, in the row's unit; a Ratio and Turns have none.
func (r Row) Result() float64 {
	switch r.Kind {
	case Ratio:
		return r.Measured.Median() / r.Baseline.Median()
	case More, Turns:
		return r.rounds().Median()
	default:
		return r.Measured.Median()
	}
}

// rounds are the rounds' differences, or what each was divided by its baseline. What else a machine
// does weighs on both sides of a round, but not on all rounds alike.
func (r Row) rounds() Series {
	var all Series
	for i, b := range r.Baseline.Samples {
		if r.Kind == Turns {
			all.Add(r.Measured.Samples[i] / b)
		} else {
			all.Add(r.Measured.Samples[i] - b)
		}
	}
	return all
}

// Met reports whether the result is within the goal, to the digits that the table shows. A
// row without a goal meets it.
func (r Row) Met() bool {
	result, goal := math.Round(r.Result()*100), math.Round(r.Goal*100)
	if r.AtLeast {
		return result >= goal
	}
	return r.Goal == 0 || result <= goal
}

// factor reports whether the result is a factor, and not in the row's unit.
func (r Row) factor() bool { return r.Kind == Ratio || r.Kind == Turns }

// amount writes a number with its unit, or as a factor.
func (r Row) amount(v float64) string {
	if r.factor() {
		return fmt.Sprintf("%.2f ×", v)
	}
	return number(v) + " " + r.Unit
}

// number writes a number with three digits that count, and two after the point at the most.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case abs >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// MarshalJSON adds the result.
func (r Row) MarshalJSON() ([]byte, error) {
	row := struct {
		Name     string  `json:"name"`
		Unit     string  `json:"unit"`
		Kind     Kind    `json:"kind"`
		Result   float64 `json:"result"`
		Goal     float64 `json:"goal,omitempty"`
		AtLeast  bool    `json:"at_least,omitempty"`
		Met      *bool   `json:"met,omitempty"`
		Baseline Series  `json:"baseline"`
		Measured Series  `json:"measured"`
	}{Name: r.Name, Unit: r.Unit, Kind: r.Kind, Result: r.Result(), Goal: r.Goal, AtLeast: r.AtLeast, Baseline: r.Baseline, Measured: r.Measured}
	if r.Goal != 0 {
		met := r.Met()
		row.Met = &met
	}
	return json.Marshal(row)
}
