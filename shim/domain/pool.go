package domain

import (
	"errors"
	"fmt"
	"sync"

	"libvirt.org/go/libvirt"
)

// maxIdle is how many idle connections are kept. Opening one takes a few
// milliseconds.
const maxIdle = 3

// pool provides connections to libvirtd, each for one call at a time. libvirt's
// client allows calls of several threads on one connection. But then a call that
// hangs can't be cancelled, and crashes the process in the end (seen with 9.0).
type pool struct {
	uri string

	mu     sync.Mutex
	idle   []*libvirt.Connect
	closed bool
}

// get returns an idle connection, or opens one, which blocks until libvirtd
// answers.
func (p *pool) get() (*libvirt.Connect, error) {
	if conn := p.take(); conn != nil {
		return conn, nil
	}
	conn, err := libvirt.NewConnect(p.uri)
	if err != nil {
		return nil, plain(err)
	}
	if err := conn.SetKeepAlive(keepAlive, keepAliveCount); err != nil {
		conn.Close()
		return nil, fmt.Errorf("enable keepalive: %w", plain(err))
	}
	if p.isClosed() {
		conn.Close()
		return nil, errTooLate
	}
	return conn, nil
}

// errTooLate means that the pool was closed before libvirtd accepted the
// connection: the call must not be made.
var errTooLate = errors.New("libvirtd answered too late")

func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// take returns an idle connection, or nil.
func (p *pool) take() *libvirt.Connect {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		conn := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if isAlive(conn) {
			return conn
		}
		conn.Close()
	}
	return nil
}

// put returns a connection to the pool.
func (p *pool) put(conn *libvirt.Connect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle || !isAlive(conn) {
		conn.Close()
		return
	}
	p.idle = append(p.idle, conn)
}

// close closes idle connections. Those in use are closed by put.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, conn := range p.idle {
		conn.Close()
	}
	p.idle = nil
}

func isAlive(conn *libvirt.Connect) bool {
	alive, err := conn.IsAlive()
	return err == nil && alive
}
