package guest

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

const (
	// hookWindow is the time after a VM's start in which a command without a timeout can be a postStart hook:
	// the kubelet sends one at once. Its probes have timeouts.
	hookWindow = 30 * time.Second
	// bootTime bounds how long such a command waits for the guest's agent.
	bootTime = 5 * time.Minute
	// agentPause is the time between two looks.
	agentPause = 200 * time.Millisecond
)

// awaitBoot waits until the guest's agent is there, if the VM has just started: a postStart hook comes before
// any guest has booted, and the kubelet ends a container whose hook fails. It returns early if the guest
// ends, and after bootTime; what follows then reports that there is no agent.
func (g *Guests) awaitBoot(ctx context.Context, v *table.VM) {
	if time.Since(v.Record().StartedAt) > hookWindow {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	pause := time.NewTicker(agentPause)
	defer pause.Stop()
	for g.agents.State(v).Presence != agent.Present {
		select {
		case <-ctx.Done():
			return
		case <-v.Exited():
			return
		case <-pause.C:
		}
	}
}
