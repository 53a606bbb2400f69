package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestLibvirtdIsAway is not parallel: all tests share libvirtd.
func TestLibvirtdIsAway(t *testing.T) {
	p := vmPod(t)
	c, killed := p.vm(suite.tiny).start().up(), vmPod(t, named("killed")).vm(suite.halt).start()
	pid, killedPID, conn := c.pid(), killed.pid(), c.echo()
	assert.NilError(t, suite.Kill(t.Context(), node.Libvirtd, syscall.SIGKILL))

	c.echoes(conn, "without libvirtd\n")
	if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("without libvirtd the VM is %s", s.State)
	}
	if l := listed(t, &runtimeapi.ContainerFilter{PodSandboxId: p.id}); len(l) != 1 || l[0].Id != c.id {
		t.Errorf("without libvirtd the list is %v", l)
	}
	stats, err := suite.cri.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: c.id})
	assert.NilError(t, err)
	if stats.Stats.Memory.UsageBytes.GetValue() == 0 {
		t.Errorf("without libvirtd the statistics are %v", stats.Stats)
	}
	inNode(t, "kill", "-9", strconv.Itoa(killedPID))
	assert.NilError(t, suite.Resume(t.Context(), node.Libvirtd))

	killed.wantEnd(killed.ended(), 137, "Error")
	if got := c.pid(); got != pid {
		t.Errorf("the machine's process was %d and is %d", pid, got)
	}
	c.echoes(conn, "with libvirtd again\n")
	wait.Until(t, "the shim reaches libvirtd again", func() bool {
		_, err := suite.cri.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: 60})
		return err == nil
	})
	c.wantEnd(c.status(), 0, "Completed")
}

// TestContainerdRestarts is not parallel: all tests share containerd.
func TestContainerdRestarts(t *testing.T) {
	p := vmPod(t)
	c := p.vm(suite.tiny).start().up()
	pid, conn := c.pid(), c.echo()
	assert.NilError(t, suite.Kill(t.Context(), node.Containerd, syscall.SIGKILL))
	c.echoes(conn, "without containerd\n")
	assert.NilError(t, suite.Resume(t.Context(), node.Containerd))
	wait.Until(t, "the shim reaches containerd again", func() bool {
		_, err := suite.cri.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err == nil
	})
	if got := c.pid(); got != pid {
		t.Errorf("the machine's process was %d and is %d", pid, got)
	}
	c.echoes(conn, "with containerd again\n")
	if got := c.page("/"); !strings.HasPrefix(got, "ip="+p.ip()) {
		t.Errorf("the guest says %q", got)
	}
	if s := p.status(); s.State != runtimeapi.PodSandboxState_SANDBOX_READY || s.RuntimeHandler != "vm" {
		t.Errorf("the pod is %s, of handler %q", s.State, s.RuntimeHandler)
	}
}
