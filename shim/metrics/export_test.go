package metrics

import (
	"strconv"
	"testing"
)

// Lines gathers the metrics that have no labels, without a server.
func (m *Metrics) Lines(t *testing.T) (lines []string) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if len(s.GetLabel()) == 0 && s.GetGauge() != nil {
				lines = append(lines, f.GetName()+" "+strconv.FormatFloat(s.GetGauge().GetValue(), 'f', -1, 64))
			}
		}
	}
	return lines
}
