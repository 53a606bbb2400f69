package report

// One is the row of a single figure. A goal of 0 is none.
func One(name, unit string, v, goal float64) Row {
	return Row{Name: name, Unit: unit, Kind: Value, Goal: goal, Measured: Series{Of: name, Samples: []float64{v}}}
}
