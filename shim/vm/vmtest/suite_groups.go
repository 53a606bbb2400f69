package vmtest

import (
	"errors"
	"io/fs"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestGroups is the suite of VMs' cgroups. parent is the pod's cgroup; pid is a
// process that end ends, and waits for.
func TestGroups(t *testing.T, g lifecycle.Groups, parent string, pid int, end func()) {
	t.Helper()
	r := record.Container{ID: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent}}
	r.Config.Value = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
		Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20},
	}}
	if err := g.Remove(r); err != nil {
		t.Errorf("remove a missing group: %v", err)
	}
	if n, err := g.OOMKills(r); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing group counts %d OOM kills, %v", n, err)
	}
	if err := g.Add(r, pid); err == nil {
		t.Error("a process is in a missing group")
	}
	for range 2 {
		if err := g.Create(r); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := g.OOMKills(r); err != nil || n != 0 {
		t.Errorf("a new group counts %d OOM kills, %v", n, err)
	}
	if err := g.Add(r, pid); err != nil {
		t.Fatal(err)
	}
	r.Resources.Value = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}
	if err := g.Set(r); err != nil {
		t.Error(err)
	}
	end()
	for range 2 {
		if err := g.Remove(r); err != nil {
			t.Error(err)
		}
	}
}
