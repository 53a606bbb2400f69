package agent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
)

// fakeHost is a node's operating system, on which the command nodevirt works at once.
type fakeHost struct {
	mu                sync.Mutex
	placed, installed bool
	vms               []string
	unfit             error
	log               []string
	// step, if not nil, is called before each change.
	step func()
}

func (h *fakeHost) change(what string) {
	if h.step != nil {
		h.step()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, what)
}

func (h *fakeHost) Place(ctx context.Context) error {
	h.change("place")
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.placed = true
	}
	return ctx.Err()
}

func (h *fakeHost) Run(ctx context.Context, args ...string) error {
	command := strings.Join(args, " ")
	h.change(command)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !h.placed:
		return errors.New("no program")
	case command == "node install" && h.unfit != nil:
		return h.unfit
	case command == "node install":
		h.installed = true
	case command == "node uninstall" && len(h.vms) > 0:
		return errors.New("VMs run on this node: " + strings.Join(h.vms, ", "))
	default:
		h.installed, h.vms = false, nil
	}
	return nil
}

func (h *fakeHost) Remove() error {
	h.change("remove")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placed = false
	return nil
}

func (h *fakeHost) set(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

func (h *fakeHost) get() (placed, installed bool, log string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.placed, h.installed, strings.Join(h.log, "; ")
}

// fakeNode is a Node object.
type fakeNode struct {
	mu      sync.Mutex
	labels  map[string]string
	changed chan struct{}
	events  []string
	// step, if not nil, is called before each change.
	step func()
}

func newFakeNode(labels map[string]string) *fakeNode {
	return &fakeNode{labels: labels, changed: make(chan struct{})}
}

func (n *fakeNode) Labels() (labels map[string]string, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.labels), n.changed
}

func (n *fakeNode) SetLabel(ctx context.Context, name string, value *string) error {
	if n.step != nil {
		n.step()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if value == nil {
		delete(n.labels, name)
	} else {
		n.labels[name] = *value
	}
	close(n.changed)
	n.changed = make(chan struct{})
	return nil
}

func (n *fakeNode) Event(failed bool, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, reason+": "+message)
	if want := strings.HasSuffix(reason, "Failed"); want != failed {
		n.events = append(n.events, "wrong type")
	}
}
