package guest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// clockTime bounds the setting of a clock, and the wait for the agent before it.
	clockTime = time.Minute
	// clockTries is how often an agent that does not answer is asked, and clockPause the time between.
	clockTries = 3
	clockPause = time.Second
)

// clocks set the clocks of guests that did not run for a while: paused, saved, moved. A guest's own clock does
// not see that time. It happens beside the guest's resumption, which never waits for it.
type clocks struct {
	agents *Agents
	of     table.PerVM[*clock]
}

// clock is one guest's.
type clock struct {
	mu sync.Mutex
	// owed is until when the clock is set once the agent is there; zero for a clock that nothing has stopped.
	owed time.Time
}

func newClocks(a *Agents) *clocks {
	c := &clocks{agents: a}
	c.of.New = func(*table.VM) *clock { return new(clock) }
	return c
}

// resumed notes that a guest runs again. A guest that boots reads its hardware clock, which follows the
// node's: nothing is owed to one whose agent is not there, unless it comes from elsewhere.
func (c *clocks) resumed(v *table.VM) {
	r := v.Record()
	presence := c.agents.State(v).Presence
	elsewhere := r.Restored != nil || vmspec.Migration(r.Sandbox.Value.GetAnnotations()) != ""
	if presence == agent.Absent && !elsewhere {
		return
	}
	c.of.Of(v).owe(time.Now().Add(clockTime))
	if presence != agent.Absent {
		c.pay(v)
	}
}

func (k *clock) owe(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owed = until
}

// take reports whether the clock must be set now, and leaves that to the caller.
func (k *clock) take() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := time.Now().Before(k.owed)
	k.owed = time.Time{}
	return is
}

// pay sets the clock of a guest whose agent is there, if it must be set.
func (c *clocks) pay(v *table.VM) {
	if !c.of.Of(v).take() {
		return
	}
	c.agents.tasks.Run(func(ctx context.Context) {
		ctx, cancel := background.AtMost(ctx, clockTime)
		defer cancel()
		wrong, err := c.follow(ctx, v)
		log := table.Logger(c.agents.log, v.Record())
		switch {
		case errors.Is(err, agent.ErrAbsent) || v.Record().State == record.Exited: // it has no agent, or goes
			log.Debug("the guest's clock is not set", "error", err)
		case err != nil:
			log.Warn("setting the guest's clock after a pause failed: set it in the guest, for example by NTP", "error", err)
		default:
			log.Debug("the guest's clock is right", "was wrong by", wrong)
		}
	})
}

// follow sets the guest's clock to the node's, or as far from it as the VM's spec has it.
func (c *clocks) follow(ctx context.Context, v *table.VM) (wrong time.Duration, err error) {
	spec := v.Record().Spec
	for try := 1; ; try++ {
		wrong, err = c.agents.Of(v).FollowTime(ctx, time.Duration(spec.Clock.Offset)*time.Second)
		lost := errors.Is(err, agent.ErrSilent) || errors.Is(err, agent.ErrGone)
		if !lost || try == clockTries || ctx.Err() != nil {
			break
		}
		background.Sleep(ctx, clockPause)
	}
	if err != nil || wrong == 0 || spec.Arch() != vmspec.AMD64 {
		return wrong, err
	}
	// A guest that counts the hardware clock's interrupts would count those of the pause, too.
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	return wrong, c.agents.ports.ForgetTicks(ctx, v.Record().Domain.UUID)
}
