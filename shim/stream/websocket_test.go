package stream_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The channels of the protocol, by the first byte of a message.
const (
	stdin, stdout, stderr, failure = 0, 1, 2, 3
	data, refusal                  = 0, 1 // of a port-forward's first port
)

// web speaks v4.channel.k8s.io, as kubelets and browsers do.
type web struct {
	t *testing.T
	*websocket.Conn
}

func dialWeb(t *testing.T, address string) web {
	t.Helper()
	u, err := url.Parse(address)
	assert.NilError(t, err)
	u.Scheme = "ws"
	config, err := websocket.NewConfig(u.String(), "http://localhost")
	assert.NilError(t, err)
	config.Protocol = []string{"v4.channel.k8s.io"}
	conn, err := config.DialContext(t.Context())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return web{t, conn}
}

func (w web) send(channel byte, text string) {
	w.t.Helper()
	assert.NilError(w.t, websocket.Message.Send(w.Conn, append([]byte{channel}, text...)))
}

// until reads until what came on a channel holds a text.
func (w web) until(channel byte, text string) {
	w.t.Helper()
	var came []string
	for all := ""; !strings.Contains(all, text); {
		var message []byte
		if err := websocket.Message.Receive(w.Conn, &message); err != nil {
			w.t.Fatalf("%v, before %q came on channel %d; there came %q", err, text, channel, came)
		}
		came = append(came, string(message))
		if len(message) > 0 && message[0] == channel {
			all += string(message[1:])
		}
	}
}

func TestWebSocket(t *testing.T) {
	s := newServer(t, ports{newEchoes()}, 0)
	exec, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true})
	assert.NilError(t, err)
	w := dialWeb(t, exec.Url)
	w.until(stderr, "complaint")
	w.send(stdin, "typed")
	w.until(stdout, "typed")
	assert.NilError(t, w.Close())

	exec, err = s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"false"}, Stdout: true})
	assert.NilError(t, err)
	dialWeb(t, exec.Url).until(failure, `"message":"3"`)

	echo := port(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	forward, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "s1", Port: []int32{int32(echo)}})
	assert.NilError(t, err)
	w = dialWeb(t, forward.Url)
	w.send(data, "there and back")
	w.until(data, "there and back")

	closed := closedPort(t)
	forward, err = s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "s1", Port: []int32{int32(closed)}})
	assert.NilError(t, err)
	dialWeb(t, forward.Url).until(refusal, fmt.Sprintf("error forwarding port %d to pod s1", closed))
}

func TestAWebSocketThatLeavesIsNoticed(t *testing.T) {
	m := newEchoes()
	s := newServer(t, m, 0)
	attach, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c1", Stdout: true})
	assert.NilError(t, err)
	w := dialWeb(t, attach.Url)
	w.until(stdout, "attached")
	assert.NilError(t, w.Close())
	select {
	case <-m.ended:
	case <-t.Context().Done():
		t.Error(context.Cause(t.Context()))
	}
}
