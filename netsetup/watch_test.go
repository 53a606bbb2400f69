package netsetup

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestWatch(t *testing.T) {
	n := newNode(t)
	m := n.start(t, idA, Pod{Netns: n.addPod(t)})
	pid, err := n.setup.Serve(t.Context(), m.plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.setup.Watch(ctx, m.plan); !errors.Is(err, context.Canceled) {
		t.Errorf("watching with a context that ended: %v", err)
	}
	watched := make(chan error, 1)
	go func() { watched <- n.setup.Watch(t.Context(), m.plan) }()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-watched; err != nil {
		t.Errorf("watching a dnsmasq that was killed: %v", err)
	}
	again, err := n.setup.Serve(t.Context(), m.plan)
	if err != nil || again == pid {
		t.Errorf("serving again: pid %d after %d, %v", again, pid, err)
	}
	if err := n.setup.Undo(t.Context(), m.plan); err != nil {
		t.Fatal(err)
	}
	if err := n.setup.Watch(t.Context(), m.plan); err != nil {
		t.Errorf("watching where none is: %v", err)
	}
}
