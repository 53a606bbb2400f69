package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nodevirt/nodevirt/test/node/supervisor"
)

// Components returns the node's daemons that were started, and the state of each.
func (n *Node) Components() ([]supervisor.State, error) {
	all, err := n.client.List()
	if err != nil {
		return nil, fmt.Errorf("ask the node for its daemons: %w", err)
	}
	return all, nil
}

// state is the state of a component; its PID is 0 if it was not started.
func (n *Node) state(component string) (supervisor.State, error) {
	all, err := n.Components()
	if err != nil {
		return supervisor.State{}, err
	}
	for _, s := range all {
		if s.Name == component {
			return s, nil
		}
	}
	return supervisor.State{Name: component}, nil
}

// setEndpoint looks which component serves the CRI, or will do so.
func (n *Node) setEndpoint(shim bool) error {
	s, err := n.state(Shim)
	if err != nil {
		return err
	}
	n.endpoint = "unix:///run/containerd/containerd.sock"
	if s.PID != 0 || shim {
		n.endpoint = "unix:///run/nodevirt/nodevirt.sock"
	}
	return nil
}

// Add starts a component which is not a node's own, or leaves it alone, as Start does. Those that were
// added by this Node can be restarted and resumed; Stop kills them before it does anything else.
func (n *Node) Add(ctx context.Context, c Component) error {
	n.mu.Lock()
	n.added = append(slices.DeleteFunc(n.added, func(old Component) bool { return old.Name == c.Name }), c)
	n.mu.Unlock()
	if err := n.ensure(ctx, c); err != nil {
		return fmt.Errorf("start %s: %w\n%s", c.Name, err, n.LogTail(c.Name, 20))
	}
	return nil
}

// Kill sends a component a signal that ends it and returns when its process is gone. What it
// started runs on.
func (n *Node) Kill(ctx context.Context, component string, sig syscall.Signal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("it does not end"))
	defer cancel()
	if err := n.client.Signal(component, sig); err != nil {
		return err
	}
	for {
		s, err := n.state(component)
		if err != nil || s.Ended {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s after %s: %w", component, sig, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Restart ends a component, politely where it can be, if it runs, and starts it again by the configuration
// that it had. It returns when the component serves.
func (n *Node) Restart(ctx context.Context, component string) error {
	s, err := n.state(component)
	if err != nil {
		return err
	}
	if s.PID != 0 && !s.Ended {
		if err := n.Kill(ctx, component, endSignal(component)); err != nil {
			return fmt.Errorf("restart %s: %w", component, err)
		}
	}
	return n.Resume(ctx, component)
}

// Resume starts a component that has ended, as Restart does.
func (n *Node) Resume(ctx context.Context, component string) error {
	values, err := n.o.values()
	if err != nil {
		return err
	}
	all, err := n.o.components(values)
	if err != nil {
		return err
	}
	n.mu.Lock()
	all = append(all, n.added...)
	n.mu.Unlock()
	for _, c := range all {
		if c.Name != component {
			continue
		}
		if err := n.spawn(ctx, c); err != nil {
			return err
		}
		return n.wait(ctx, c)
	}
	return fmt.Errorf("start %s: the node has no such component", component)
}

// LogTail is the end of a component's log: at most so many lines, under a line with its path.
// The component "init" is the node's first process.
func (n *Node) LogTail(component string, lines int) string {
	return n.LogOf(component, "", lines)
}

// LogOf is like LogTail, of the lines that hold a text.
func (n *Node) LogOf(component, text string, lines int) string {
	return logTail(n.o.log(component), text, lines)
}

// Tail is LogTail of any log, by its path.
func Tail(path string, lines int) string { return logTail(path, "", lines) }

func logTail(path, text string, lines int) string {
	log, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("--- no log: %v", err)
	}
	all := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	all = slices.DeleteFunc(all, func(line string) bool { return !strings.Contains(line, text) })
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return fmt.Sprintf("--- %s\n%s", path, strings.Join(all, "\n"))
}

// Has reports whether a component was ever started in the node.
func (n *Node) Has(component string) bool { return exists(n.o.log(component)) }
