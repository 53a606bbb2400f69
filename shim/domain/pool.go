package domain

import (
	"errors"
	"fmt"
	"sync"

	"libvirt.org/go/libvirt"
)

// maxIdle is how many connections are kept for the next calls. Opening one
// takes a few milliseconds.
const maxIdle = 3

// pool lends connections to libvirtd, each to one call at a time. libvirt's
// client takes calls of several threads on one connection, but one that hangs is
// not given up then, and crashes the process in the end (seen with 9.0).
type pool struct {
	uri string

	mu     sync.Mutex
	idle   []*libvirt.Connect
	closed bool
}

// get borrows a connection that was idle, or makes one, which waits for as long
// as libvirtd does not answer.
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
		return nil, fmt.Errorf("switch keepalive on: %w", plain(err))
	}
	if p.isClosed() {
		conn.Close()
		return nil, errTooLate
	}
	return conn, nil
}

// errTooLate means that libvirtd was given up before it took the connection: the
// call must not be made any more.
var errTooLate = errors.New("it answered too late")

func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// take is an idle connection, or nil.
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

// put gives a connection back.
func (p *pool) put(conn *libvirt.Connect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle || !isAlive(conn) {
		conn.Close()
		return
	}
	p.idle = append(p.idle, conn)
}

// close closes what is idle. What is lent is closed when it comes back.
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
