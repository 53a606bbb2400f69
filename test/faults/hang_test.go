//go:build faults

package faults

import (
	"context"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// signal sends a component a signal that does not end it.
func signal(t *testing.T, component string, sig syscall.Signal) {
	t.Helper()
	pid, err := pidOf(component)
	assert.NilError(t, err)
	_, err = suite.Output(context.WithoutCancel(t.Context()), "kill", "-"+strconv.Itoa(int(sig)), strconv.Itoa(pid))
	assert.NilError(t, err)
}

// TestHangingLibvirtd stops libvirtd for longer than the shim waits for it.
func TestHangingLibvirtd(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started-1]...)
	runs := r.beside(t, "hangs")
	runs.does(t, life[:started]...)
	signal(t, node.Libvirtd, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, node.Libvirtd, syscall.SIGCONT) })
	removed := make(chan error, 1)
	go func() { removed <- life[ending+1].do(t.Context(), runs.pod) }() // without a deadline
	assert.NilError(t, answers(t.Context()))
	assert.NilError(t, lists(t.Context()))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a kubelet's
	defer cancel()
	err := life[started-1].do(ctx, r.pod)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "libvirtd is not available") {
		t.Errorf("start with a libvirtd that hangs: %v", err)
	}
	if err := <-removed; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "docs/node.md") {
		t.Errorf("removal with a libvirtd that hangs: %v", err)
	}
	assert.NilError(t, answers(t.Context()))
	for _, g := range suite.steady {
		assert.NilError(t, g.lives(t.Context()))
	}
}

func TestHangingContainerd(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started-1]...)
	signal(t, node.Containerd, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, node.Containerd, syscall.SIGCONT) })
	assert.NilError(t, answers(t.Context()))
	for _, c := range life {
		switch c.name {
		case "ContainerStatus", "StopContainer":
			continue // these need no containerd
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		p := *r.pod
		err := c.do(ctx, &p)
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s with a containerd that hangs: %v", c.name, err)
		}
	}
	for _, g := range suite.steady {
		assert.NilError(t, g.lives(t.Context()))
	}
}

// TestStartOfTheShimWhileContainerdHangs: it waits, says for what, and goes on by itself.
func TestStartOfTheShimWhileContainerdHangs(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	signal(t, node.Containerd, syscall.SIGSTOP)
	told := strings.Count(suite.LogTail(node.Shim, math.MaxInt), "waiting for containerd")
	go func() {
		defer signal(t, node.Containerd, syscall.SIGCONT)
		for range 3000 { // of the bound of one try, and more
			if strings.Count(suite.LogTail(node.Shim, math.MaxInt), "waiting for containerd") > told {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error("the shim does not say what it waits for")
	}()
	assert.NilError(t, resume(t.Context(), node.Shim))
	assert.NilError(t, r.look(t.Context()))
}

// TestHangingRegistry pulls from one that accepts and never answers: only the caller waits, as long
// as it likes.
func TestHangingRegistry(t *testing.T) {
	r := begin(t)
	const host = "127.0.0.1:5999"
	l, err := suite.Listen(t.Context(), "tcp", host)
	assert.NilError(t, err)
	defer l.Close()
	asked := make(chan struct{}, 100)
	silent := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, q.Body)
		<-q.Context().Done()
	})}
	go func() { _ = silent.Serve(l) }()
	defer func() { _ = silent.Close() }()
	hosts := filepath.Join(suite.Dir(), "etc/certs.d", host, "hosts.toml")
	assert.NilError(t, os.MkdirAll(filepath.Dir(hosts), 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(filepath.Dir(hosts))) })
	assert.NilError(t, os.WriteFile(hosts, []byte("server = \"http://"+host+"\"\n"), 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pulled := make(chan error, 1)
	go func() {
		pull := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: host + "/silent:1"}}
		_, err := runtimeapi.NewImageServiceClient(suite.conn).PullImage(ctx, pull)
		pulled <- err
	}()
	select {
	case <-asked:
	case err := <-pulled:
		t.Fatalf("the pull came to an end: %v", err)
	}
	assert.NilError(t, answers(t.Context()))
	assert.NilError(t, lists(t.Context()))
	r.does(t, life[:started]...)
	cancel()
	if err := <-pulled; status.Code(err) != codes.Canceled {
		t.Errorf("the pull that was given up: %v", err)
	}
}
