package stream

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// listener keeps its connections, since net/http forgets those that a protocol
// other than HTTP has taken over.
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

// closeAll closes the connections, and those that come.
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

// conn ends a context with itself: what a client that has gone had asked for is
// given up, though nothing is written to it.
type conn struct {
	net.Conn
	listener *listener
	lost     context.Context
	lose     context.CancelFunc
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// net/http interrupts a read by a deadline that has passed.
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.lose()
	}
	return n, err
}

// Close may be called again: the server and the protocol each do.
func (c *conn) Close() error {
	c.lose()
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return ignoreClosed(c.Conn.Close())
}

// within is ctx, which ends with the connection too.
func within(ctx context.Context, c net.Conn) context.Context {
	own, ok := c.(*conn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(own.lost, cancel)
	return ctx
}
