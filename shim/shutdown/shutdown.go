// Package shutdown reports whether the node shuts down or reboots, so that a guest which powers off because of that is
// not taken for one that its owner has powered off.
//
// It owns the questions to systemd and logind. It leaves shutting guests down to libvirt-guests.service and the
// kubelet, and what an end means to package lifecycle. A node without systemd never shuts down.
package shutdown

import (
	"context"
	"log/slog"
	"time"
)

// patience bounds the questions: while a node shuts down, D-Bus may have ended.
const patience = 3 * time.Second

// Node is the shim's node.
type Node struct {
	log *slog.Logger
	// questions are asked one after the other, until one says yes.
	questions []question
}

// question asks who knows of a shutdown. No answer is no shutdown.
type question struct {
	whom string
	ask  func(context.Context) (bool, error)
}

// New returns the node of this process.
func New(log *slog.Logger) *Node {
	// systemd's private socket answers to the last. logind knows earlier: while the kubelet delays the shutdown to
	// end its pods, systemd has not begun.
	return &Node{log: log, questions: []question{{"systemd", systemdStops}, {"logind", logindPrepares}}}
}

// Underway reports whether the node shuts down or reboots. It takes seconds at the most.
func (n *Node) Underway(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, q := range n.questions {
		yes, err := q.ask(ctx)
		if err != nil {
			n.log.Debug("asking whether the node shuts down failed", "whom", q.whom, "error", err)
		}
		if yes {
			return true
		}
	}
	return false
}
