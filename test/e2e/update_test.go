package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

func (c *container) update(r *runtimeapi.LinuxContainerResources) error {
	c.t.Helper()
	_, err := suite.cri.UpdateContainerResources(c.t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.id, Linux: r,
	})
	return err
}

// wantSettings compares the group's limits with those that a container's come to.
func (c *container) wantSettings(quota, memory int64) {
	c.t.Helper()
	group := filepath.Join(c.pod.config.Linux.CgroupParent, c.id)
	got := setting(c.t, group, "cpu%s/cpu.cfs_quota_us", "%s/cpu.max")
	if got, _, _ = strings.Cut(got, " "); got != fmt.Sprint(quota) {
		c.t.Errorf("CPU quota %s, want %d", got, quota)
	}
	if got := setting(c.t, group, "memory%s/memory.limit_in_bytes", "%s/memory.max"); got != fmt.Sprint(memory+overhead) {
		c.t.Errorf("memory limit %s, want %d", got, memory+overhead)
	}
}

// TestUpdate changes what a machine has while it runs. It is not parallel: all tests share the
// shim.
func TestUpdate(t *testing.T) {
	c := vmPod(t).vm(suite.tiny).start().up()
	pid, full := c.pid(), c.guest().Memory

	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 300}))
	c.wantSettings(50000, guestMemory)
	if got := setting(t, filepath.Join(c.pod.config.Linux.CgroupParent, c.id), "cpu%s/cpu.shares", "%s/cpu.weight"); got != "300" && got != "12" {
		t.Errorf("CPU shares %s", got)
	}

	const less = 112 * mebibyte // QEMU 10 has a Linux kernel keep more for its consoles: it cannot release much more
	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: less}))
	c.wantSettings(50000, less)
	if got := full - c.guest().Memory; got != guestMemory-less {
		t.Errorf("the guest has %d bytes less, want %d", got, guestMemory-less)
	}

	for limit, code := range map[int64]codes.Code{
		32 * mebibyte: codes.OutOfRange, guestMemory + 1: codes.OutOfRange, -1: codes.OutOfRange,
	} {
		err := c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit, CpuQuota: 70000})
		if status.Code(err) != code || !strings.Contains(err.Error(), "the limit can be 64Mi to 128Mi") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	if err := c.update(&runtimeapi.LinuxContainerResources{CpuQuota: 5}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a quota that the kernel refuses: %v", err)
	}
	c.wantSettings(50000, less)

	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	if r := c.status().Resources.Linux; r.CpuQuota != 50000 || r.CpuShares != 300 || r.MemoryLimitInBytes != less {
		t.Errorf("the status of a new shim has %v", r)
	}
	c.wantSettings(50000, less)

	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: guestMemory, CpuQuota: -1}))
	wait.Until(t, "the guest has its memory back", func() bool { return c.guest().Memory == full })
	group := filepath.Join(c.pod.config.Linux.CgroupParent, c.id)
	if got := setting(t, group, "cpu%s/cpu.cfs_quota_us", "%s/cpu.max"); got != "-1" && got != "max 100000" {
		t.Errorf("the quota was lifted, and is %s", got)
	}
	if c.pid() != pid {
		t.Error("the machine is another one")
	}
	c.stop(0)
	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{CpuQuota: 10000}))
	if r := c.status().Resources.Linux; r.CpuQuota != 10000 {
		t.Errorf("after the end: %v", r)
	}
}

// TestUpdateOfAGuestThatKeepsItsMemory: memory that a guest keeps is not taken from
// the group either.
func TestUpdateOfAGuestThatKeepsItsMemory(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.halt).start()
	c.saying("halted$")
	err := c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: guestMemory / 2, CpuQuota: 50000})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "the guest still has 128Mi") {
		t.Errorf("%v", err)
	}
	c.wantSettings(-1, guestMemory)
	if r := c.status().Resources.Linux; r.MemoryLimitInBytes != guestMemory || r.CpuQuota != 0 {
		t.Errorf("resources: %v", r)
	}
}

// TestUpdateBeforeTheStart: the machine is made of the resources that it has by then.
func TestUpdateBeforeTheStart(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.tiny)
	err := c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: mebibyte / 2})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("half a MiB: %v", err)
	}
	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 160 * mebibyte, CpuPeriod: 100000, CpuQuota: 200000,
	}))
	if r := c.status().Resources.Linux; r.MemoryLimitInBytes != 160*mebibyte {
		t.Errorf("before the start: %v", r)
	}
	c.start().up()
	c.wantSettings(200000, 160*mebibyte)
	if g := c.guest(); g.CPUs != 2 || g.Memory < guestMemory*9/10 { // a kernel keeps 30 MiB for itself
		t.Errorf("the guest has %d CPUs and %d bytes", g.CPUs, g.Memory)
	}
}
