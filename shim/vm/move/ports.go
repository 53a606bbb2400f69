package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// answerLeast is how long a target answers a source that has lost the answer, even if others need the port. The source asks
// every few seconds.
const answerLeast = 30 * time.Second

// ports are the node's ports on which targets wait for guests that have their pod's address. A target keeps its port after its
// guest has come, to answer a source that has lost the answer; it gives the port up if another target needs one.
type ports struct {
	shares *budget.Budget
	now    func() time.Time

	mu        sync.Mutex
	answering []*port // the longest first
}

// port is a port of the node that a target has. Its methods may be called on nil, which is no port of the node.
type port struct {
	net.Listener
	of     *ports
	settle func()        // releases the namespace's share
	needed chan struct{} // closed if another target needs the port
	closed chan struct{} // closed with the listener
	once   sync.Once
	since  time.Time // when the target settled
}

func newPorts() *ports {
	return &ports{
		shares: budget.New("ports of the node for guests that move here", bounds.NodePorts, bounds.NamespaceNodePorts), now: time.Now,
	}
}

// take listens on a free port for a guest of a namespace. If there is none, it takes that of the target which has settled the
// longest ago.
func (p *ports) take(ctx context.Context, namespace string, listen func(context.Context) (net.Listener, error)) (*port, error) {
	tenant := "namespace " + namespace
	if err := p.shares.Take(tenant, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", vmerrors.ErrBusy, err)
	}
	settle := sync.OnceFunc(func() { p.shares.Release(tenant, 1) })
	for {
		l, err := listen(ctx)
		if err == nil {
			return &port{Listener: l, of: p, settle: settle, needed: make(chan struct{}), closed: make(chan struct{})}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !p.reclaim(ctx) {
			settle()
			return nil, err
		}
	}
}

// reclaim has one settled target close its port, and reports whether one did.
func (p *ports) reclaim(ctx context.Context) bool {
	p.mu.Lock()
	if len(p.answering) == 0 || p.now().Sub(p.answering[0].since) < answerLeast {
		p.mu.Unlock()
		return false
	}
	oldest := p.answering[0]
	p.answering = p.answering[1:]
	p.mu.Unlock()
	close(oldest.needed)
	select {
	case <-oldest.closed:
		return true
	case <-ctx.Done():
		return false
	}
}

// answers marks the port as one of a target that has settled. The result is closed if another target needs the port.
func (p *port) answers() (needed <-chan struct{}) {
	if p == nil {
		return nil
	}
	p.settle()
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.since = p.of.now()
	p.of.answering = append(p.of.answering, p)
	return p.needed
}

// Close implements net.Listener. It may be called again.
func (p *port) Close() error {
	err := p.Listener.Close()
	p.once.Do(func() {
		p.settle()
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		p.of.answering = slices.DeleteFunc(p.of.answering, func(other *port) bool { return other == p })
		close(p.closed)
	})
	return err
}
