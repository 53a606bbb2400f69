package handover

import (
	"context"
	"errors"
	"net"
	"sync"
)

// link connects the nodes. A connection that was open while the link hung stays so.
type link struct {
	mu        sync.Mutex
	cut, hung bool
	conns     []*linkConn
}

func (l *link) down() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut || l.hung
}

// fail cuts the link: each end learns it; or lets it hang: no end does.
func (l *link) fail(hang bool) {
	l.mu.Lock()
	l.cut, l.hung = !hang, hang
	conns := l.conns
	l.conns = nil
	for _, c := range conns {
		c.lost = c.lost || hang
	}
	l.mu.Unlock()
	for _, c := range conns {
		if !hang {
			c.Close()
		}
	}
}

func (l *link) repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.hung = false, false
}

// dial connects the source's process to the target's, which serves it.
func (w *world) dial(from *process, serve func(*process, net.Conn)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		w.link.mu.Lock()
		cut, hung := w.link.cut, w.link.hung
		w.link.mu.Unlock()
		if hung {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		w.mu.Lock()
		to := w.target.process
		refused := cut || to == nil || to.dead || from.dead
		w.mu.Unlock()
		if refused {
			return nil, errors.New("connection refused")
		}
		a, b := net.Pipe()
		here, there := &linkConn{Conn: a, link: w.link, owner: from}, &linkConn{Conn: b, link: w.link, owner: to}
		w.mu.Lock()
		from.conns, to.conns = append(from.conns, here), append(to.conns, there)
		w.mu.Unlock()
		w.link.mu.Lock()
		w.link.conns = append(w.link.conns, here, there)
		w.link.mu.Unlock()
		go serve(to, there)
		return here, nil
	}
}

// linkConn is one end of a connection.
type linkConn struct {
	net.Conn
	link  *link
	owner *process
	lost  bool // what is written is lost
}

func (c *linkConn) Write(p []byte) (int, error) {
	c.owner.pause()
	c.link.mu.Lock()
	lost := c.lost
	c.link.mu.Unlock()
	if lost {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.owner.pause()
	return n, err
}
