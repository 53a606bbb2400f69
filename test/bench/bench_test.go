package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

const shimLog = `time=2026-11-21T03:00:20.619Z level=INFO msg=nodevirt-shim version=dev
time=2026-11-21T03:00:21.1Z level=DEBUG msg="phase of a start" container.id=a phase=network duration=40.5ms
time=2026-11-21T03:00:21.2Z level=DEBUG msg="phase of a start" container.id=a phase=domain duration=1.25s
time=2026-11-21T03:00:22.1Z level=DEBUG msg="phase of a start" container.id=b phase=network duration=500µs
time=2026-11-21T03:00:22.2Z level=DEBUG msg="phase of a start" container.id=b phase=domain duration=300ms
`

func TestPhases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shim.log")
	assert.NilError(t, os.WriteFile(path, []byte(shimLog), 0o600))
	for starts, want := range map[int][]report.Series{
		1: {{Of: "network", Samples: []float64{0.5}}, {Of: "domain", Samples: []float64{300}}},
		2: {{Of: "network", Samples: []float64{40.5, 0.5}}, {Of: "domain", Samples: []float64{1250, 300}}},
	} {
		got, err := readPhases(path, starts)
		assert.NilError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("phases of the last %d starts (-want +got):\n%s", starts, diff)
		}
	}
	if _, err := readPhases(path, 3); err == nil {
		t.Error("a third start's phases were found in a log of two")
	}
}

func TestProcesses(t *testing.T) {
	all, err := processes(os.Getppid())
	assert.NilError(t, err)
	own := slices.IndexFunc(all, func(p process) bool { return p.pid == os.Getpid() })
	if own < 0 || all[own].parent != os.Getppid() || all[own].name == "" {
		t.Errorf("this process, %d of %d, is not among its parent's: %v", os.Getpid(), os.Getppid(), all)
	}
}

func TestChosenBenches(t *testing.T) {
	some, err := Options{Only: []string{"burst", "start"}}.chosen()
	if err != nil || len(some) != 2 || some[0].name != "start" || some[1].name != "burst" {
		t.Errorf("chosen: %v, %v", some, err)
	}
	if all, err := (Options{}).chosen(); err != nil || len(all) != len(Names())-len(named()) {
		t.Errorf("without a choice: %v, %v", all, err)
	}
	if one, err := (Options{Only: []string{"iorbd"}}).chosen(); err != nil || len(one) != 1 {
		t.Errorf("a bench that must be named: %v, %v", one, err)
	}
	if _, err := (Options{Only: []string{"stars"}}).chosen(); err == nil {
		t.Error("a bench that there is not was chosen")
	}
}

func TestTurns(t *testing.T) {
	var order []string
	s := func(name string) side {
		return side{of: name, do: func(context.Context) error { order = append(order, name); return nil }}
	}
	times, err := turns(t.Context(), 2, s("a"), s("b"))
	assert.NilError(t, err)
	if diff := cmp.Diff([]string{"a", "b", "b", "a", "a", "b"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for i, of := range []string{"a", "b"} {
		if times[i].Of != of || len(times[i].Samples) != 2 {
			t.Errorf("times of %s: %v", of, times[i])
		}
	}
}
