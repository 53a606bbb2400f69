package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRemove(t *testing.T) {
	g := created(t, Limits{})
	process := sleeper(t)
	if err := g.Add(process.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); !errors.Is(err, ErrBusy) {
		t.Errorf("Remove of a group in use: %v", err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 1 {
		t.Errorf("the refused Remove left %v, %v", pids, err)
	}

	// A zombie, that is not reaped yet, does not hold the group.
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	for controller, path := range g.paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the %q group is still there: %v", controller, err)
		}
	}
	if err := g.Create(Limits{}); err != nil {
		t.Errorf("Create after Remove: %v", err)
	}
}

func TestRemoveOwnParent(t *testing.T) {
	own := testParent(t)
	var groups [2]*Group
	for i, id := range []string{"vm1", "vm2"} {
		g, err := open("", id, own)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Create(Limits{}); err != nil {
			t.Fatal(err)
		}
		groups[i] = g
	}
	for i, g := range groups {
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
		for controller, path := range g.paths {
			_, err := os.Stat(filepath.Dir(path))
			if last := i == 1; errors.Is(err, fs.ErrNotExist) != last {
				t.Errorf("after %d of 2 groups the %q parent: %v", i+1, controller, err)
			}
		}
	}
}

func TestRemoveLeavesThePodsGroup(t *testing.T) {
	g := created(t, Limits{})
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, path := range g.paths {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			t.Error(err)
		}
	}
}
