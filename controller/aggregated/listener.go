package aggregated

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// Bounds of connections. The front proxies of a cluster are few, and each reuses
// its connections; a console, a display or a forwarded port has its own.
const (
	// handshakeTimeout bounds a TLS handshake of an address that has authenticated before, newTimeout that of another.
	handshakeTimeout = 5 * time.Second
	newTimeout       = 3 * time.Second
)

// proxyListener accepts connections whose TLS handshake succeeded.
type proxyListener struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	failed chan error
	done   chan struct{}
	close  func() error

	handshakes *handshakes

	mu   sync.Mutex
	open int
}

func newProxyListener(ctx context.Context, l net.Listener, config *tls.Config) *proxyListener {
	p := &proxyListener{
		Listener: l, config: config, handshakes: newHandshakes(),
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
		go p.handshake(ctx, c, p.handshakes.begin(c, peer(c)))
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

func (p *proxyListener) handshake(ctx context.Context, c net.Conn, h *handshake) {
	secure := tls.Server(c, p.config)
	limit := newTimeout
	if h.known {
		limit = handshakeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	p.handshakes.end(h, err == nil)
	if err != nil || !p.enter() {
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

// enter counts an authenticated connection, unless there are too many.
func (p *proxyListener) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= bounds.Connections {
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
