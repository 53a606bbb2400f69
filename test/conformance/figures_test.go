package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// figuresFile holds the table of what the specs of a node's density and use of resources measured when they last ran
// with -update.
const figuresFile = "node-figures.txt"

// performance is what a spec prints of itself; k8s.io/kubernetes/test/e2e/perftype.
type performance struct {
	DataItems []struct {
		Data   map[string]float64 `json:"data"`
		Unit   string             `json:"unit"`
		Labels map[string]string  `json:"labels"`
	} `json:"dataItems"`
	Labels map[string]string `json:"labels"`
}

// figure names one number of a spec's.
type figure struct{ of, container, percentile string }

// columns are the table's, after the spec and the side.
var columns = []struct {
	title  string
	format string
	figure figure
}{
	{"start P50, s", "%.2f", figure{"latency", "", "Perc50"}},
	{"P99", "%.2f", figure{"latency", "", "Perc99"}},
	{"runtime's CPUs", "%.3f", figure{"cpu", "runtime", "Perc50"}},
	{"max", "%.3f", figure{"cpu", "runtime", "Perc100"}},
	{"MB", "%.0f", figure{"memory", "runtime", "workingset"}},
	{"kubelet's CPUs", "%.3f", figure{"cpu", "kubelet", "Perc50"}},
	{"max", "%.3f", figure{"cpu", "kubelet", "Perc100"}},
}

// figuresOf reads what specs have printed, by their descriptions.
func figuresOf(output string) (map[string]map[figure]float64, error) {
	all := map[string]map[figure]float64{}
	for _, part := range strings.Split(output, "[Result:Performance] ")[1:] {
		var p performance
		if err := json.NewDecoder(strings.NewReader(part)).Decode(&p); err != nil {
			return nil, fmt.Errorf("figures of a spec: %w", err)
		}
		spec := p.Labels["desc"]
		if all[spec] == nil {
			all[spec] = map[figure]float64{}
		}
		for _, item := range p.DataItems {
			of, scale := item.Labels["resource"], 1.0
			switch {
			case item.Labels["datatype"] == "latency":
				of, scale = "latency", 1000 // of ms
			case item.Unit == "mCPU":
				scale = 1000
			}
			for percentile, value := range item.Data {
				all[spec][figure{of, item.Labels["container"], percentile}] = value / scale
			}
		}
	}
	return all, nil
}

// figuresTable compares what specs have measured, with containerd and through the shim.
func figuresTable(measured map[string]map[string]map[figure]float64) string {
	var b strings.Builder
	b.WriteString("| spec | by |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, spec := range slices.Sorted(maps.Keys(measured[through])) {
		name, isStart := strings.CutPrefix(spec, "latency/resource should be within limit when create ")
		if isStart { // one of the others has the same name without
			name = strings.TrimSuffix(name, " [Benchmark]")
		}
		name = strings.NewReplacer("resource tracking for ", "at rest: ", " per node", "").Replace(name)
		for _, side := range []string{plain, through} {
			fmt.Fprintf(&b, "| %s | %s |", name, side)
			for _, c := range columns {
				cell := ""
				if value, has := measured[side][spec][c.figure]; has {
					cell = fmt.Sprintf(c.format, value)
				}
				b.WriteString(" " + cell + " |")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// withOthers is a table with the rows of another for specs that it does not have.
func withOthers(table, other string) string {
	const heads = 2
	rows := strings.SplitAfter(table, "\n")
	nameOf := func(row string) string { return strings.SplitN(row, "|", 3)[1] }
	own := map[string]bool{}
	all := rows[heads : len(rows)-1]
	for _, row := range all {
		own[nameOf(row)] = true
	}
	others := strings.SplitAfter(other, "\n")
	for _, row := range others[min(heads, len(others)):] {
		if row != "" && !own[nameOf(row)] {
			all = append(all, row)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return strings.Join(slices.Concat(rows[:heads], all), "")
}

// TestWithOthers: a run of some specs replaces their rows alone.
func TestWithOthers(t *testing.T) {
	const head = "| spec | by |\n|---|---|\n"
	got := withOthers(head+"| b | new |\n", head+"| a | old |\n| b | old |\n| c | old |\n")
	assert.Equal(t, got, head+"| a | old |\n| b | new |\n| c | old |\n")
	assert.Equal(t, withOthers(head, ""), head)
}

// TestFigures: the table has a row for each spec and side, with the figures that the specs print.
func TestFigures(t *testing.T) {
	text, err := os.ReadFile(golden.Path("node-output.txt"))
	assert.NilError(t, err)
	got, err := figuresOf(string(text))
	assert.NilError(t, err)
	none, err := figuresOf("")
	assert.NilError(t, err)
	golden.Assert(t, figuresTable(map[string]map[string]map[figure]float64{plain: none, through: got}), "node-table.txt")
	_, err = figuresOf("[Result:Performance] {")
	assert.ErrorContains(t, err, "figures of a spec")
}
