package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

const parentVar = "NODEVIRT_CGROUP_TEST_PARENT"

// TestUnified runs a child that sees the v2 hierarchy alone. The library looks once in a process's
// life which version there is.
func TestUnified(t *testing.T) {
	needs.Parts(t, "root")
	child := again(t, "v2")
	child.Env = append(child.Env, parentVar+"="+testParent(t))
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// unified is the child's part: placement and removal. Limits are absent, as this hierarchy may have
// no controllers.
func unified() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("none", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	if !cgroups.IsCgroup2UnifiedMode() {
		return fmt.Errorf("the library does not see v2")
	}
	g, err := open("", "vm1", os.Getenv(parentVar))
	if err != nil {
		return err
	}
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		return err
	}
	defer end(process)
	if err := g.Create(Limits{}); err != nil {
		return err
	}
	if err := g.Add(process.Process.Pid); err != nil {
		return err
	}
	if err := checkPlaced(g, process.Process.Pid); err != nil {
		return err
	}
	end(process)
	if err := g.Remove(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Dir(g.Path())); err == nil {
		return fmt.Errorf("%s was left", filepath.Dir(g.Path()))
	}
	return nil
}

func checkPlaced(g *Group, pid int) error {
	at, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	if want := "0::" + g.config.Path + "\n"; !strings.Contains(string(at), want) {
		return fmt.Errorf("the process is in %q, want %q", at, want)
	}
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{pid}) {
		return fmt.Errorf("PIDs() = %v, %w", pids, err)
	}
	stats, err := g.Stats()
	if err != nil {
		return err
	}
	if stats.PIDs != 1 {
		return fmt.Errorf("counters of one process: %+v", stats)
	}
	return nil
}
