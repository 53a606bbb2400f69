package report_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		samples              []float64
		lower, median, upper float64
	}{
		{[]float64{7}, 7, 7, 7},
		{[]float64{3, 1}, 1.5, 2, 2.5},
		{[]float64{5, 1, 4, 2, 3}, 2, 3, 4},
		{[]float64{40, 10, 30, 20}, 17.5, 25, 32.5},
	} {
		s := report.Series{Samples: c.samples}
		before := append([]float64(nil), c.samples...)
		got := []float64{s.Quantile(0.25), s.Median(), s.Quantile(0.75)}
		if diff := cmp.Diff([]float64{c.lower, c.median, c.upper}, got); diff != "" {
			t.Errorf("quartiles of %v (-want +got):\n%s", c.samples, diff)
		}
		if diff := cmp.Diff(before, s.Samples); diff != "" {
			t.Errorf("the samples' order changed:\n%s", diff)
		}
	}
	if !math.IsNaN((report.Series{}).Median()) {
		t.Error("no samples have a median")
	}
}

// example has each kind of row, met and missed.
func example() report.Report {
	one := func(of string, samples ...float64) report.Series { return report.Series{Of: of, Samples: samples} }
	return report.Report{
		Machine: report.Machine{CPUs: 4, MemMiB: 24105, Kernel: "6.1.0", QEMU: "7.2.0", Libvirt: "9.0.0"},
		Sections: []report.Section{{
			Title: "Starts",
			Notes: []string{"A note on them."},
			Rows: []report.Row{
				{Name: "create and start", Unit: "ms", Kind: report.Ratio, Goal: 1.3,
					Baseline: one("libvirt", 300, 310, 320), Measured: one("shim", 403, 390, 410)},
				{Name: "to the very hundredth", Unit: "ms", Kind: report.Ratio, Goal: 1.1,
					Baseline: one("64 MB", 100), Measured: one("64 GB", 110.4)},
				{Name: "missed by a hundredth", Unit: "ms", Kind: report.Ratio, Goal: 1.1,
					Baseline: one("64 MB", 100), Measured: one("64 GB", 110.6)},
			},
		}, {
			Title: "Calls",
			Rows: []report.Row{
				{Name: "Version", Unit: "ms", Kind: report.More, Goal: 0.3,
					Baseline: one("containerd", 0.2), Measured: one("shim", 0.31)},
				{Name: "quicker", Unit: "ms", Kind: report.More, Goal: 3,
					Baseline: one("containerd", 120, 220, 320), Measured: one("shim", 117, 218, 399)},
				{Name: "memory", Unit: "MiB", Kind: report.Value, Goal: 10, Measured: one("all", 11.234)},
				{Name: "reads", Unit: "MiB/s", Kind: report.Turns, Goal: 0.95, AtLeast: true,
					Baseline: one("alone", 100, 200, 400), Measured: one("guest", 97, 196, 360)},
				{Name: "writes", Unit: "MiB/s", Kind: report.Turns, Goal: 0.95, AtLeast: true,
					Baseline: one("alone", 100), Measured: one("guest", 94)},
				{Name: "no goal", Unit: "MiB", Kind: report.Value, Measured: one("all", 1, 2)},
			},
		}},
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	assert.NilError(t, example().Table(&b))
	golden.Assert(t, b.String(), "table.txt")
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(line); n > 101 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if got := example().Missed(); got != 3 {
		t.Errorf("%d rows missed their goals; want 3", got)
	}
}

func TestJSON(t *testing.T) {
	path, err := example().Write(filepath.Join(t.TempDir(), "new"))
	assert.NilError(t, err)
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var back struct {
		Sections []struct {
			Rows []struct {
				Name     string
				Result   float64
				Met      *bool
				Baseline *struct{ Median float64 }
				Measured struct{ Samples []float64 }
			}
		}
	}
	assert.NilError(t, json.Unmarshal(text, &back))
	start, plain := back.Sections[0].Rows[0], back.Sections[1].Rows[5]
	if start.Result != 1.3 || start.Met == nil || !*start.Met || start.Baseline.Median != 310 {
		t.Errorf("the first row reads %+v", start)
	}
	if diff := cmp.Diff([]float64{403, 390, 410}, start.Measured.Samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if plain.Met != nil || plain.Baseline != nil || plain.Result != 1.5 {
		t.Errorf("a row without a goal reads %+v", plain)
	}
}
