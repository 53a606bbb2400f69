package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestKill(t *testing.T) {
	g := created(t, Limits{})
	inside, outside := sleeper(t), sleeper(t)
	if err := g.Add(inside.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("left are %v, %v", pids, err)
	}
	if err := g.kill(outside.Process.Pid); err != nil { // whose number a process of the group had
		t.Error(err)
	}
	if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", outside.Process.Pid)); err != nil { // fails for a zombie
		t.Errorf("a process of another group was killed: %v", err)
	}
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := g.Kill(); err != nil {
			t.Errorf("kill in a group that does not exist: %v", err)
		}
	}
}

// TestKillFrozen: on v1 a frozen process does not end.
func TestKillFrozen(t *testing.T) {
	g := created(t, Limits{})
	if err := g.Add(sleeper(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	file, text, running := filepath.Join(g.paths["freezer"], "freezer.state"), "FROZEN", "THAWED"
	if g.paths["freezer"] == "" {
		file, text, running = filepath.Join(g.paths[""], "cgroup.freeze"), "1", "0"
	}
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if thaw, err := g.Frozen(); err != nil || thaw != "echo "+running+" > "+file {
		t.Errorf("frozen: %q, %v", thaw, err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if thaw, err := g.Frozen(); err != nil || thaw != "" && running == "THAWED" {
		t.Errorf("thawed: %q, %v", thaw, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if thaw, err := g.Frozen(); err != nil || thaw != "" {
		t.Errorf("removed: %q, %v", thaw, err)
	}
}
