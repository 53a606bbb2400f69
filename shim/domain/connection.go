package domain

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/internal/budget"
	"github.com/nodevirt/nodevirt/internal/turns"
)

const (
	// A connection is closed when libvirtd has not answered on it for
	// keepAlive × (keepAliveCount + 1).
	keepAlive      = 10 // seconds
	keepAliveCount = 2
	// The pause between two attempts to connect is minRetry to maxRetry.
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// Connection is the connection to one libvirtd, while [Connection.Run] keeps it. Its
// methods, and those of the parts that use it, can be called from any goroutine.
// Without a connection, calls to libvirtd fail at once with [ErrUnavailable].
//
// Every call ends with its context, or after [bounds.CallTime] if the context has no deadline,
// even if libvirtd hangs. libvirtd may then still carry out the request.
type Connection struct {
	uri string
	log *slog.Logger
	// orders are the turns of calls that users order.
	orders *turns.Turns
	// unanswered are all calls that libvirtd has not answered, by their objects.
	unanswered *budget.Budget

	mu        sync.Mutex
	calls     *pool         // nil while there is no libvirtd
	connected chan struct{} // closed while calls is set

	subscribers subscribers
}

// Run keeps a connection to libvirtd until ctx ends, which is no error. It
// reconnects whenever the connection is lost, without a limit.
func (c *Connection) Run(ctx context.Context) error {
	if err := eventLoop(); err != nil {
		return err
	}
	for {
		s, err := c.connect(ctx)
		if err != nil {
			return nil //nolint:nilerr // only ctx ends the attempts
		}
		c.publish()
		c.log.Info("connected to libvirtd", "uri", c.uri)
		select {
		case reason := <-s.lost:
			c.retract()
			s.close()
			c.log.Warn("lost the connection to libvirtd; guests continue to run", "uri", c.uri, "reason", reason)
		case <-ctx.Done():
			c.retract()
			s.close()
			return nil
		}
	}
}

// Connected waits until there is a connection.
func (c *Connection) Connected(ctx context.Context) error {
	c.mu.Lock()
	connected := c.connected
	c.mu.Unlock()
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return &failure{op: "connect to", object: "libvirtd at " + c.uri, kind: ErrUnavailable, detail: context.Cause(ctx)}
	}
}

// connect retries until it has a session or ctx ends.
func (c *Connection) connect(ctx context.Context) (*session, error) {
	var logged bool
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		s, err := open(ctx, c.uri, c.subscribers.send)
		if err == nil {
			return s, nil
		}
		if ctx.Err() == nil && !logged {
			logged = true
			c.log.Warn("can't connect to libvirtd, retrying", "uri", c.uri, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publish lets calls use the connection, and makes subscribers read all states
// again: there are no events for changes without a connection.
func (c *Connection) publish() {
	c.mu.Lock()
	c.calls = &pool{uri: c.uri}
	close(c.connected)
	c.mu.Unlock()
	c.subscribers.send(Event{Kind: EventResync})
}

func (c *Connection) retract() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.close()
	c.calls = nil
	c.connected = make(chan struct{})
}

// pool returns the connections for calls, and nil while there is no libvirtd.
func (c *Connection) pool() *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}
