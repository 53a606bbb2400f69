package nodelabels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// Degraded is the type of the Node's condition that the shim writes. It is true while the node has a problem that its
// administrator must solve.
const Degraded corev1.NodeConditionType = "nodevirt.io/Degraded"

// noProblem is the reason of a condition that is false.
const noProblem = "NoProblem"

// renew is how often the condition is written without a change. It is also then that a Node that was made again gets it.
const renew = 5 * time.Minute

// Condition keeps the node's condition up to date.
type Condition struct {
	// write gives the Node its condition; nil: nothing is written.
	write    func(ctx context.Context, now corev1.NodeCondition) error
	problems func() []nodeproblems.Problem
	log      *slog.Logger

	written corev1.NodeCondition
	failed  bool
}

// NewCondition returns a Condition with a kubeconfig, which need not exist yet. With an empty path it writes nothing.
func NewCondition(kubeconfig string, problems func() []nodeproblems.Problem, log *slog.Logger) *Condition {
	c := &Condition{problems: problems, log: log}
	if kubeconfig != "" {
		c.write = (&node{api: kubelet.New(kubeconfig)}).writeCondition
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
		if same && time.Since(c.written.LastHeartbeatTime.Time) < renew {
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
func conditionOf(problems []nodeproblems.Problem, now time.Time) corev1.NodeCondition {
	at := metav1.NewTime(now)
	c := corev1.NodeCondition{
		Type: Degraded, Status: corev1.ConditionFalse, Reason: noProblem, Message: "nodevirt has found no problem of this node",
		LastHeartbeatTime: at, LastTransitionTime: at,
	}
	if len(problems) > 0 {
		var messages []string
		for _, p := range problems {
			messages = append(messages, p.Message)
		}
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, string(problems[0].Reason), strings.Join(messages, "; ")
	}
	return c
}

// writeCondition merges the condition into the Node's status, by its type.
func (n *node) writeCondition(ctx context.Context, now corev1.NodeCondition) error {
	name, err := n.api.NodeName(ctx)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{now}}})
	if err != nil {
		return err
	}
	_, err = n.api.Do(ctx, kubelet.Request{
		Method: http.MethodPatch, Path: []string{"api", "v1", "nodes", name, "status"}, Query: "fieldManager=nodevirt-shim",
		Type: "application/strategic-merge-patch+json", Metadata: true, Body: patch,
	})
	if errors.Is(err, kubelet.ErrGone) {
		return fmt.Errorf("write the condition of node %s: the kubelet has not registered it: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("write the condition of node %s: %w", name, err)
	}
	return nil
}
