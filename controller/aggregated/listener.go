package aggregated

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// Bounds of connections. The front proxies of a cluster are few, and each reuses
// its connections; a console, a display or a forwarded port has its own.
const (
	// handshakeTimeout bounds a TLS handshake.
	handshakeTimeout = 5 * time.Second
	// maxHandshakes bounds the connections that are not authenticated yet, and
	// maxHandshakesOfOne those of one address, so that one pod keeps no API server out.
	maxHandshakes      = 1024
	maxHandshakesOfOne = 256
	// maxConnections bounds the authenticated ones.
	maxConnections = 4096
)

// proxyListener accepts connections whose TLS handshake succeeded. It closes
// connections above the bounds at once.
type proxyListener struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	failed chan error
	done   chan struct{}
	close  func() error

	mu sync.Mutex
	// pending counts handshakes by the peer's IP address, and all of them by "".
	pending map[string]int
	open    int
}

func newProxyListener(ctx context.Context, l net.Listener, config *tls.Config) *proxyListener {
	p := &proxyListener{
		Listener: l, config: config, pending: map[string]int{},
		ready: make(chan net.Conn), failed: make(chan error, 1), done: make(chan struct{}),
	}
	p.close = sync.OnceValue(func() error {
		close(p.done)
		return l.Close()
	})
	go p.accept(ctx)
	return p
}

// Accept returns the next authenticated connection.
func (p *proxyListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.ready:
		return c, nil
	case err := <-p.failed:
		return nil, err
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. Accepted connections stay open.
func (p *proxyListener) Close() error { return p.close() }

func (p *proxyListener) accept(ctx context.Context) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			if temporary(err) {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			p.failed <- err
			return
		}
		address := peer(c)
		if !p.admit(address) {
			_ = c.Close()
			continue
		}
		go p.handshake(ctx, c, address)
	}
}

// temporary reports whether accepting may succeed later, such as with fewer open
// files.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *proxyListener) handshake(ctx context.Context, c net.Conn, address string) {
	secure := tls.Server(c, p.config)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	if !p.settle(address, err == nil) {
		_ = c.Close()
		return
	}
	select {
	case p.ready <- &counted{Conn: secure, release: sync.OnceFunc(p.release)}:
	case <-p.done:
		p.release()
		_ = c.Close()
	}
}

// admit counts a handshake, unless there are too many.
func (p *proxyListener) admit(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[""] >= maxHandshakes || p.pending[address] >= maxHandshakesOfOne {
		return false
	}
	p.pending[""]++
	p.pending[address]++
	return true
}

// settle counts a handshake no longer. It reports whether the connection may stay.
func (p *proxyListener) settle(address string, authenticated bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[""]--
	if p.pending[address]--; p.pending[address] == 0 {
		delete(p.pending, address)
	}
	if !authenticated || p.open >= maxConnections {
		return false
	}
	p.open++
	return true
}

func (p *proxyListener) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

func peer(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// counted is a connection that is no longer counted once it is closed.
type counted struct {
	*tls.Conn
	release func()
}

func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
