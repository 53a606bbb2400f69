package nodelabels

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// Degraded is the type of the Node's condition that the shim writes. It is true while the node has a problem that its
// administrator must solve.
const Degraded = "nodevirt.io/Degraded"

// noProblem is the reason of a condition that is false.
const noProblem = "NoProblem"

// Condition keeps the node's condition up to date.
type Condition struct {
	// write gives the Node its condition; nil: nothing is written.
	write    func(ctx context.Context, now NodeCondition) error
	problems func() []nodeproblems.Problem
	log      *slog.Logger

	written NodeCondition
	failed  bool
}

// NewCondition returns a Condition with a kubeconfig, which need not exist yet. With an empty path it writes nothing.
func NewCondition(kubeconfig string, problems func() []nodeproblems.Problem, log *slog.Logger) *Condition {
	c := &Condition{problems: problems, log: log}
	if kubeconfig != "" {
		c.write = NewConditions(kubeconfig).Set
	}
	return c
}

// Run writes the condition until ctx ends.
func (c *Condition) Run(ctx context.Context) {
	if c.write == nil {
		return
	}
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		c.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// step writes the condition if it changed, or if it is old.
func (c *Condition) step(ctx context.Context) {
	now := conditionOf(c.problems(), time.Now())
	if c.written.Status == now.Status {
		same := c.written.Reason == now.Reason && c.written.Message == now.Message
		if same && time.Since(c.written.LastHeartbeatTime) < heartbeat {
			return
		}
		now.LastTransitionTime = c.written.LastTransitionTime
	}
	err := c.write(ctx, now)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !c.failed {
			c.log.Warn("cannot write the node's condition, will retry", "error", err)
		}
		c.failed = true
	default:
		c.failed, c.written = false, now
	}
}

// conditionOf returns the condition of a node with problems.
func conditionOf(problems []nodeproblems.Problem, now time.Time) NodeCondition {
	c := NodeCondition{
		Type: Degraded, Status: string(corev1.ConditionFalse), Reason: noProblem, Message: "nodevirt has found no problem of this node",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if len(problems) > 0 {
		var messages []string
		for _, p := range problems {
			messages = append(messages, p.Message)
		}
		c.Status, c.Reason, c.Message = string(corev1.ConditionTrue), string(problems[0].Reason), strings.Join(messages, "; ")
	}
	return c
}
