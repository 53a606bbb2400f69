//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// witness serves in the cluster's control plane, where guests and kubelets reach it: gRPC's health service,
// and pages of any name, which it remembers.
type witness struct {
	host       string
	http, grpc int // ports

	mu   sync.Mutex
	seen map[string]bool
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{host: suite.ControlAddress(), seen: map[string]bool{}}
	pages, checks := listenInControl(t), listenInControl(t)
	w.http, w.grpc = pages.Addr().(*net.TCPAddr).Port, checks.Addr().(*net.TCPAddr).Port
	var serving sync.WaitGroup
	web := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen[r.URL.Path] = true
	})}
	serving.Go(func() { _ = web.Serve(pages) })
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	serving.Go(func() { _ = server.Serve(checks) })
	t.Cleanup(func() {
		server.Stop()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return w
}

// url is that of a page.
func (w *witness) url(page string) string { return fmt.Sprintf("http://%s:%d%s", w.host, w.http, page) }

// asked waits until a page was asked for.
func (w *witness) asked(t *testing.T, page string) {
	t.Helper()
	wait.Success(t, "a request for "+page, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.seen[page] {
			return errors.New("none yet")
		}
		return nil
	})
}

// listenInControl listens in the control plane's network namespace.
func listenInControl(t *testing.T) net.Listener {
	t.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromPath(fmt.Sprintf("/proc/%d/ns/net", suite.Control().PID()))
		if err != nil {
			done <- result{err: err}
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- result{err: err}
			return
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(suite.ControlAddress(), "0"))
		done <- result{l, err}
	}()
	r := <-done
	assert.NilError(t, r.err)
	return r.l
}
