package stream

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// listener tracks its connections, since net/http forgets those that were hijacked
// for another protocol.
type listener struct {
	net.Listener

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	own := &conn{Conn: c, listener: l, lost: ctx, lose: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		cancel()
		c.Close()
		return nil, net.ErrClosed
	}
	l.conns[own] = struct{}{}
	return own, nil
}

// closeAll closes all connections, present and future.
func (l *listener) closeAll() {
	l.mu.Lock()
	l.closed = true
	var all []*conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// conn cancels its context when it ends, so that the work for a client that left
// stops even if nothing is written.
type conn struct {
	net.Conn
	listener *listener
	lost     context.Context
	lose     context.CancelFunc
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// net/http interrupts a read by setting a deadline in the past.
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.lose()
	}
	return n, err
}

// NetConn returns the connection of the listener below, for package callers.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close may be called twice: the server and the protocol both do so.
func (c *conn) Close() error {
	c.lose()
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return ignoreClosed(c.Conn.Close())
}

// within returns a context that ends with ctx or with the connection.
func within(ctx context.Context, c net.Conn) context.Context {
	own, ok := c.(*conn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(own.lost, cancel)
	return ctx
}
