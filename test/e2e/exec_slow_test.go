//go:build slow

package e2e

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodevirt/nodevirt/shim/agent"
)

// An agent that dies is missed at once, and one that hangs delays no other caller.
func TestTheAgentEnds(t *testing.T) {
	t.Parallel()
	c := vmWithAgent(t)
	c.wantExecError(codes.Unavailable, "disconnected before it answered", 60, "sh", "-c", "sleep 1; kill -KILL $(pidof qemu-ga); sleep 60")
	c.agentIs(agent.Present) // again
	c.wantExec("back\n", "", 0, "echo", "back")

	c.wantExecError(codes.Unavailable, "does not answer", 0, "sh", "-c", "kill -STOP $(pidof qemu-ga); sleep 60")
	hung := make(chan error)
	go func() {
		_, err := c.tryExec(0, "true")
		hung <- err
	}()
	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
	if err := <-hung; status.Code(err) != codes.Unavailable && status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the command of a machine that ended: %v", err)
	}
}
