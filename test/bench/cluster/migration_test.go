package cluster

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
)

// TestSteps: the steps of a migration are read from the logs that shims write.
func TestSteps(t *testing.T) {
	var all logs
	for _, steps := range [][]handover.Step{
		{handover.StepConnected, handover.StepPrepared, handover.StepPerformed}, {handover.StepReady, handover.StepResumed},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "shim.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		log := slog.New(slog.NewTextHandler(f, nil)).With("pod", "virt-launcher-a b")
		log.Info("another line", "step", "x")
		for _, s := range steps {
			log.Info("a migration's step", "migration", "1", "step", string(s))
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	steps, err := all.steps()
	if err != nil || len(steps) != 5 || steps[handover.StepResumed].Before(steps[handover.StepConnected]) {
		t.Errorf("%v, %v", steps, err)
	}
	if _, err := all.steps(); err == nil {
		t.Error("logs without a step are accepted")
	}
}

// TestNames: each part of the report has a name.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Names() {
		if name == "" || seen[name] {
			t.Errorf("the name %q is not a part's alone", name)
		}
		seen[name] = true
	}
	if _, err := Run(t.Context(), Options{Only: []string{"nothing"}}); err == nil {
		t.Error("a part that there is not is measured")
	}
}
