package guest

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// portPoll is the time between two looks whether an agent has come.
const portPoll = 5 * time.Millisecond

// Run runs a command in a guest once its agent is there. If it has not come when ctx ends, the error is
// ErrAbsent of package agent.
func (a *Agents) Run(ctx context.Context, v *table.VM, c agent.Command) (agent.Result, error) {
	one := a.Of(v)
	for one.Facts.State().Presence != agent.Present {
		select {
		case <-ctx.Done():
			return agent.Result{}, agent.ErrAbsent
		case <-time.After(portPoll):
		}
	}
	return one.Commands.Exec(ctx, c)
}
