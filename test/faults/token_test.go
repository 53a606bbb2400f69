//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// attachURL and forwardURL are what the kubelet connects to.
func attachURL(t *testing.T, r *round) string {
	t.Helper()
	reply, err := suite.cri.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: r.container, Stdout: true})
	assert.NilError(t, err)
	return reply.Url
}

func forwardURL(t *testing.T, r *round) string {
	t.Helper()
	reply, err := suite.cri.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: r.id, Port: []int32{80}})
	assert.NilError(t, err)
	return reply.Url
}

// upgrade connects to a URL, in the node. Without a connection it returns the code of the reply, 0 if
// there is none.
func upgrade(ctx context.Context, url string) (conn *websocket.Conn, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	d := websocket.Dialer{
		NetDialContext: suite.Dial, Subprotocols: []string{"v4.channel.k8s.io"},
	}
	conn, reply, err := d.DialContext(ctx, strings.Replace(url, "http:", "ws:", 1), nil)
	if reply != nil {
		code = reply.StatusCode
	}
	return conn, code, err
}

// TestTokens: each is good for one connection, of the first client, and for none after the VM's end.
func TestTokens(t *testing.T) {
	for name, url := range map[string]func(*testing.T, *round) string{"attach": attachURL, "port-forward": forwardURL} {
		t.Run(name, func(t *testing.T) {
			r := begin(t)
			r.does(t, life[:started]...)

			// By several clients at once.
			shared := url(t, r)
			var mu sync.Mutex
			codes := map[int]int{}
			var open []*websocket.Conn
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					conn, code, _ := upgrade(t.Context(), shared)
					mu.Lock()
					defer mu.Unlock()
					codes[code]++
					if conn != nil {
						open = append(open, conn)
					}
				})
			}
			all.Wait()
			if codes[http.StatusSwitchingProtocols] != 1 || codes[http.StatusNotFound] != 7 {
				t.Errorf("8 clients with one token: %v", codes)
			}
			for _, conn := range open {
				assert.NilError(t, conn.Close())
			}
			// After the connection's end, and after a request that is no upgrade.
			wantRefused(t, "a used token", shared)
			plain := url(t, r)
			if _, err := suite.Fetch(t.Context(), http.MethodGet, plain, ""); err == nil {
				t.Error("a request that is no upgrade is answered")
			}
			wantRefused(t, "a token that a request without an upgrade used", plain)
			forged := url(t, r)
			wantRefused(t, "a forged token", forged[:len(forged)-8]+"AAAAAAAA")

			// Late: the guest has ended, the container is removed, the shim is another one.
			stopped, removed, restarted := url(t, r), url(t, r), url(t, r)
			r.does(t, life[ending])
			wantEnd(t, "a token of a VM that has ended", stopped)
			r.does(t, life[ending+1])
			wantEnd(t, "a token of a VM that is removed", removed)
			assert.NilError(t, suite.Restart(t.Context(), node.Shim))
			assert.NilError(t, redial())
			if conn, code, err := upgrade(t.Context(), restarted); err == nil {
				t.Errorf("a token of an earlier shim: %d", code)
				_ = conn.Close()
			}
		})
	}
}

func wantRefused(t *testing.T, what, url string) {
	t.Helper()
	conn, code, err := upgrade(t.Context(), url)
	if err == nil {
		_ = conn.Close()
	}
	if code != http.StatusNotFound {
		t.Errorf("%s: %d, %v", what, code, err)
	}
}

// wantEnd wants a connection to be refused, or to end at once, with words.
func wantEnd(t *testing.T, what, url string) {
	t.Helper()
	conn, code, err := upgrade(t.Context(), url)
	if err != nil {
		t.Logf("%s: %d, %v", what, code, err)
		return
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	var said []string
	for {
		_, text, err := conn.ReadMessage()
		if err == nil {
			if len(text) > 1 {
				said = append(said, fmt.Sprintf("%q", text))
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			t.Errorf("%s: the connection stays open: %v, %s", what, err, said)
		}
		t.Logf("%s: %v, %s", what, err, said)
		return
	}
}
