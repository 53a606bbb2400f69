package vmtest

import (
	"context"

	"github.com/nodevirt/nodevirt/netsetup"
)

// Serve implements netsetup's. A server that runs stays.
func (n *Network) Serve(ctx context.Context, p netsetup.Plan) (int, error) {
	if err := n.script.enter(ctx, "Network.Serve"); err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.Served() {
		return 0, nil
	}
	if n.servers[p.ID] == 0 {
		n.lastPID++
		n.servers[p.ID] = n.lastPID
	}
	return n.servers[p.ID], nil
}

// Watch implements netsetup's.
func (n *Network) Watch(ctx context.Context, p netsetup.Plan) error {
	if err := n.script.enter(ctx, "Network.Watch"); err != nil {
		return err
	}
	for {
		n.mu.Lock()
		pid, changed := n.servers[p.ID], n.changed
		n.mu.Unlock()
		if pid == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Forget implements netsetup's.
func (n *Network) Forget(ctx context.Context, p netsetup.Plan) (bool, error) {
	if err := n.script.enter(ctx, "Network.Forget"); err != nil {
		return false, err
	}
	return n.Kill(p.ID), nil
}

// Kill ends a VM's dnsmasq, and reports whether there was one.
func (n *Network) Kill(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[id] == 0 {
		return false
	}
	delete(n.servers, id)
	close(n.changed)
	n.changed = make(chan struct{})
	return true
}

// Server returns the process id of a VM's dnsmasq, 0 if there is none.
func (n *Network) Server(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[id]
}
