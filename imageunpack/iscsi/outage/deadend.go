package outage

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// deadEnd is a target without a disk. It accepts every initiator without a password, and fails each SCSI
// command except TEST UNIT READY, without which an initiator would not accept the target.
type deadEnd struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// mostUsers is the maximum number of connections. A VM has one for each disk.
const mostUsers = 4096

// idleTime is how long a connection may be idle. QEMU sends a request every five seconds.
const idleTime = time.Minute

// listen opens a dead end on the loopback address of a portal's address family.
func listen(family netip.Addr) (*deadEnd, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if family.Is6() && !family.Is4In6() {
		loopback = netip.IPv6Loopback()
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		return nil, fmt.Errorf("listen for iSCSI initiators: %w", err)
	}
	e := &deadEnd{listener: l, conns: map[net.Conn]bool{}}
	e.serving.Go(e.serve)
	return e, nil
}

func (e *deadEnd) port() uint16 {
	return e.listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// close ends all connections. A nil dead end has none.
func (e *deadEnd) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.closed = true
	_ = e.listener.Close()
	for c := range e.conns {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.serving.Wait()
}

func (e *deadEnd) serve() {
	for {
		c, err := e.listener.Accept()
		if err != nil {
			return // closed
		}
		if !e.add(c) {
			_ = c.Close()
			continue
		}
		e.serving.Go(func() {
			defer e.remove(c)
			s := session{conn: c}
			for s.step() == nil {
			}
		})
	}
}

// serves reports whether the initiator at an address is connected.
func (e *deadEnd) serves(initiator netip.AddrPort) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && a.AddrPort() == initiator {
			return true
		}
	}
	return false
}

func (e *deadEnd) add(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.conns) >= mostUsers {
		return false
	}
	e.conns[c] = true
	return true
}

func (e *deadEnd) remove(c net.Conn) {
	_ = c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}
