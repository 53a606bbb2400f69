package cgroup_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuite checks that real cgroups are what the fake ones are.
func TestSuite(t *testing.T) {
	pid, end := cgroup.Sleeper(t)
	vmtest.TestGroups(t, resources.Groups{Overhead: 64 << 20}, cgroup.NewParent(t), pid, end)
}

// TestKillSparesQEMU: a guest that runs is nothing that is left of a VM.
func TestKillSparesQEMU(t *testing.T) {
	g := resources.Groups{Overhead: 64 << 20}
	r := record.Container{ID: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	r.Domain.Name = "default_web_0123456789ab"
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroup.NewParent(t)}}
	if err := g.Create(r); err != nil {
		t.Fatal(err)
	}
	helper, endHelper := cgroup.Sleeper(t)
	defer endHelper()
	guest := exec.Command("sleep", "60")
	guest.Args[0] = "guest=" + r.Domain.Name + ",debug-threads=on" // as QEMU has it
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	endGuest := func() {
		_ = guest.Process.Kill()
		_ = guest.Wait()
	}
	defer endGuest()
	for _, pid := range []int{helper, guest.Process.Pid} {
		if err := g.Add(r, pid); err != nil {
			t.Fatal(err)
		}
	}
	if killed, err := g.Kill(r); err == nil || !strings.Contains(err.Error(), "is the QEMU of domain "+r.Domain.Name) || len(killed) > 0 {
		t.Errorf("with a guest that runs: killed %v, %v", killed, err)
	}
	endGuest()
	killed, err := g.Kill(r)
	if err != nil || !slices.Equal(killed, []string{fmt.Sprintf("sleep (%d)", helper)}) {
		t.Errorf("killed %v, %v", killed, err)
	}
	if err := g.Remove(r); err != nil {
		t.Error(err)
	}
}
