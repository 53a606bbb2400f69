package callers

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Listener accepts up to a number of connections. For another one, it closes one that has no request. If all have one, it
// closes the new one.
type Listener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*conn // the oldest first
}

// conn is a connection that a Listener counts until it is closed.
type conn struct {
	net.Conn
	of       *Listener
	address  string
	requests int // those that are served; guarded by the Listener's mu
}

// Limit returns a Listener of at most most connections.
func Limit(l net.Listener, most int) *Listener { return &Listener{Listener: l, most: most} }

// Prepare prepares a server to serve the Listener's connections, and returns the Listener. Connections of another listener
// in between must have a method NetConn, as those of package tls have.
func (l *Listener) Prepare(s *http.Server) net.Listener {
	also := s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if also != nil {
			ctx = also(ctx, c)
		}
		for {
			outer, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				return context.WithValue(ctx, key{}, c)
			}
			c = outer.NetConn()
		}
	}
	serve := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(key{}).(*conn); ok {
			defer l.occupy(c)()
		}
		serve.ServeHTTP(w, r)
	})
	return l
}

// key is that of a connection in the context of its requests.
type key struct{}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		made := &conn{Conn: c, of: l, address: address(c)}
		if l.enter(made) {
			return made, nil
		}
		_ = c.Close()
	}
}

// enter counts a connection, and closes another one above the bound. It returns false if it can close none.
func (l *Listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		i := l.idle()
		if i < 0 {
			return false
		}
		_ = l.open[i].Conn.Close() // the server notices, and closes it again
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.open = append(l.open, c)
	return true
}

// idle returns the index of the connection to close, or -1. The caller holds l.mu.
func (l *Listener) idle() int {
	of, found := map[string]int{}, -1
	for _, c := range l.open {
		if c.requests == 0 {
			of[c.address]++
		}
	}
	for i, c := range l.open {
		if c.requests == 0 && (found < 0 || of[c.address] > of[l.open[found].address]) {
			found = i
		}
	}
	return found
}

// occupy keeps a connection open until the returned function is called.
func (l *Listener) occupy(c *conn) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requests++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.requests--
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.open, c); i >= 0 {
		c.of.open = slices.Delete(c.of.open, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func address(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}
