package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node/registry"
)

// slowRegistry is a registry in the node's network that a test can have wait in the middle of a large answer.
type slowRegistry struct {
	address string
	mu      sync.Mutex
	most    int           // how many bytes of an answer it sends while held
	held    chan struct{} // closed by release; nil for a registry that never waited
}

// serveSlowly starts a registry that the node pulls from.
func (u user) serveSlowly() *slowRegistry {
	u.Helper()
	images, err := registry.Handler(u.TempDir())
	assert.NilError(u, err)
	l, err := u.n.Listen(u.Context(), "tcp", "127.0.0.1:0")
	assert.NilError(u, err)
	r := &slowRegistry{address: l.Addr().String()}
	hosts := filepath.Join(u.n.Dir(), "etc", "certs.d", r.address)
	assert.NilError(u, os.MkdirAll(hosts, 0o755))
	assert.NilError(u, os.WriteFile(filepath.Join(hosts, "hosts.toml"), fmt.Appendf(nil, "server = %q\n", "http://"+r.address), 0o644))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		images.ServeHTTP(&slowAnswer{ResponseWriter: w, registry: r, gone: q.Context().Done()}, q)
	})}
	go func() { _ = server.Serve(l) }()
	u.Cleanup(func() { assert.Check(u, server.Close()) })
	return r
}

// hold has each answer wait after its first bytes.
func (r *slowRegistry) hold(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most, r.held = most, make(chan struct{})
}

// release lets all answers go on.
func (r *slowRegistry) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.held)
}

// wait returns the end of the wait of an answer that has sent so many bytes; nil for one that goes on.
func (r *slowRegistry) wait(sent int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent < r.most {
		return nil
	}
	return r.held
}

// slowAnswer is an answer that waits with its registry.
type slowAnswer struct {
	http.ResponseWriter
	registry *slowRegistry
	gone     <-chan struct{} // the client
	sent     int
}

// Write implements io.Writer.
func (a *slowAnswer) Write(p []byte) (int, error) {
	if held := a.registry.wait(a.sent); held != nil {
		select {
		case <-held:
		case <-a.gone:
		}
	}
	n, err := a.ResponseWriter.Write(p)
	a.sent += n
	return n, err
}
