package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// ticking makes the guest write a line each second.
var ticking = annotated(map[string]string{"nodevirt.io/vmi": fmt.Sprintf(`{"domain": {
	"firmware": {"kernelBoot": {"kernelArgs": %q, "container": {"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
	"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "d", "containerDisk": {"path": "/disk/disk.qcow2"}}]}`, guest.Cmdline+" nodevirt.tick")})

// TestTheShimRestarts is not parallel: all tests share the shim.
func TestTheShimRestarts(t *testing.T) {
	p := vmPod(t, ticking)
	c := p.vm(suite.kernel).start()
	killed, off := vmPod(t).vm(suite.halt).start(), vmPod(t).vm(suite.tiny).start().up()
	created := vmPod(t).vm(suite.halt)
	asked := vmWithAgent(t)
	c.saying("tick 2$")
	before, pid, conn := c.status(), c.pid(), c.echo()
	killedPID, offPID, offPage := killed.pid(), off.pid(), off.url("/cgi-bin/poweroff")
	c.echoes(conn, "before\n")

	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	c.echoes(conn, "without the shim\n")
	inNode(t, "kill", "-9", strconv.Itoa(killedPID))
	_, err := suite.Fetch(t.Context(), "GET", offPage, "")
	assert.NilError(t, err)
	wait.Until(t, "two machines end", func() bool { return !running(killedPID) && !running(offPID) })
	logged := len(ticks(t, c))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))

	if got := c.pid(); got != pid {
		t.Errorf("the machine's process was %d and is %d", pid, got)
	}
	if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING ||
		s.StartedAt != before.StartedAt || s.CreatedAt != before.CreatedAt {
		t.Errorf("before: %v, after: %v", before, s)
	}
	c.echoes(conn, "after\n")
	c.saying(fmt.Sprintf("tick %d$", logged+2))
	for i, tick := range ticks(t, c) {
		if tick != i+1 {
			t.Fatalf("the console lost lines: its ticks are %v", ticks(t, c))
		}
	}
	killed.wantEnd(killed.ended(), 137, "Error")
	off.wantEnd(off.ended(), 0, "Completed")
	created.start().saying("halted$")
	asked.wantExec("found again\n", "", 0, "echo", "found again")
	asked.agentIs(agent.Present)
	if s := p.status(); s.RuntimeHandler != "vm" {
		t.Errorf("after the restart the pod's handler is %q", s.RuntimeHandler)
	}
	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
}

// ticks are the numbers of the lines that the guest wrote each second.
func ticks(t *testing.T, c *container) []int {
	t.Helper()
	return ticksIn(t, readLog(t, c.logFile()))
}

func ticksIn(t *testing.T, lines []string) (all []int) {
	t.Helper()
	re := regexp.MustCompile(`nodevirt guest: tick (\d+)$`)
	for _, line := range lines {
		if m := re.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			assert.NilError(t, err)
			all = append(all, n)
		}
	}
	return all
}

// running reports whether the node has a process.
func running(pid int) bool {
	_, err := os.Stat(procOf(pid))
	return err == nil
}
