//go:build slow

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestISCSIOutages is not parallel: all tests share the daemons. It kills tgtd in the middle of
// writes, and what else a disk over iSCSI hangs from.
func TestISCSIOutages(t *testing.T) {
	c := vmPod(t, overISCSI).vm(suite.agent, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte
	}).start().up()
	c.agentIs(agent.Present)
	pid := c.pid()
	w := c.writes(c.vmInfo().Disks[0].Image.VirtualSize)
	for range 20 {
		c.target()
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		assert.NilError(t, suite.Kill(t.Context(), node.Tgtd, syscall.SIGKILL))
		assert.NilError(t, suite.Resume(t.Context(), node.Tgtd))
	}
	c.target()
	w.goesOn("with tgtd")
	for range 3 { // the process that shows the overlay
		old := c.target().Path
		var qsd int
		if _, err := fmt.Sscanf(old, "/proc/%d/root", &qsd); err != nil {
			break // a file, where those can be cloned
		}
		inNode(t, "kill", "-9", strconv.Itoa(qsd))
		wait.Until(t, "another process shows the disk", func() bool { return c.target().Path != old })
	}
	w.goesOn("with the overlay")
	for _, daemon := range []string{node.Libvirtd, node.Shim} {
		assert.NilError(t, suite.Kill(t.Context(), daemon, syscall.SIGKILL))
		assert.NilError(t, suite.Resume(t.Context(), daemon))
		w.goesOn("with " + daemon)
	}
	// All that it hangs from at once.
	for _, daemon := range []string{node.Shim, node.Tgtd, node.Libvirtd} {
		assert.NilError(t, suite.Kill(t.Context(), daemon, syscall.SIGKILL))
	}
	for _, daemon := range []string{node.Tgtd, node.Libvirtd, node.Shim} {
		assert.NilError(t, suite.Resume(t.Context(), daemon))
	}
	c.target()
	w.goesOn("with all of it")
	wait.Until(t, "libvirtd has the secret again", func() bool {
		return strings.Contains(inNode(t, "virsh", "secret-list"), c.id)
	})
	w.end()
	if got := c.pid(); got != pid {
		t.Errorf("the machine's process was %d and is %d", pid, got)
	}
	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
}
