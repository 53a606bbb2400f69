//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"gotest.tools/v3/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodevirt/nodevirt/test/wait"
)

// dial asks for a subresource of an instance as virtctl does, by a WebSocket; as another user than the
// administrator if one is named. Further protocols are offered before virtctl's.
func dial(t *testing.T, subresource, user string, further ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", suite.Kubeconfig())
	assert.NilError(t, err)
	tls, err := rest.TLSConfigFor(config)
	assert.NilError(t, err)
	header := http.Header{}
	if user != "" {
		header.Set("Impersonate-User", user)
	}
	url := "wss" + strings.TrimPrefix(config.Host, "https") +
		"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/" + subresource
	dialer := websocket.Dialer{TLSClientConfig: tls, Subprotocols: append(further, "plain.kubevirt.io")}
	return dialer.DialContext(t.Context(), url, header)
}

// socket is a WebSocket that is read all the time. It is closed when the test ends.
type socket struct {
	t *testing.T
	*websocket.Conn
	ended chan struct{}

	mu    sync.Mutex
	text  bytes.Buffer
	pings int
	err   error // how it ended
}

func connect(t *testing.T, subresource string, further ...string) *socket {
	t.Helper()
	conn, _, err := dial(t, subresource, "", further...)
	assert.NilError(t, err)
	s := &socket{t: t, Conn: conn, ended: make(chan struct{})}
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		s.mu.Lock()
		s.pings++
		s.mu.Unlock()
		return pong(data)
	})
	go func() {
		err := s.read()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-s.ended
	})
	return s
}

func (s *socket) read() error {
	for {
		kind, message, err := s.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.BinaryMessage {
			return fmt.Errorf("a message of kind %d", kind)
		}
		data, err := io.ReadAll(message)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.text.Write(data)
		s.mu.Unlock()
	}
}

func (s *socket) send(text string) {
	s.t.Helper()
	assert.NilError(s.t, s.WriteMessage(websocket.BinaryMessage, []byte(text)))
}

// got is what came, and how many pings beside it.
func (s *socket) got() (text string, pings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.pings
}

// sees waits until a text has come, and returns all that came up to its end.
func (s *socket) sees(want string) string {
	s.t.Helper()
	var upTo string
	wait.Success(s.t, fmt.Sprintf("%.80q on the socket", want), func(context.Context) error {
		text, _ := s.got()
		if before, _, ok := strings.Cut(text, want); ok {
			upTo = before + want
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended: %w", s.err)
		default:
			return fmt.Errorf("so far %d bytes, %.200q", len(text), text[max(0, len(text)-200):])
		}
	})
	return upTo
}

// forgets drops what came so far.
func (s *socket) forgets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

// takes waits for so many bytes, and drops them.
func (s *socket) takes(n int) (taken []byte) {
	s.t.Helper()
	wait.Success(s.t, fmt.Sprintf("%d bytes on the socket", n), func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.text.Len() < n {
			return fmt.Errorf("so far %d: %w", s.text.Len(), s.err)
		}
		taken = bytes.Clone(s.text.Next(n))
		return nil
	})
	return taken
}

// endsNormally waits for the other side's end, which has to be the usual one.
func (s *socket) endsNormally() { s.endsWith(websocket.CloseNormalClosure) }

// isTakenOver wants the socket's end without a word, as KubeVirt ends a console for a
// newer one.
func (s *socket) isTakenOver() { s.endsWith(websocket.CloseAbnormalClosure) }

func (s *socket) endsWith(code int) {
	s.t.Helper()
	wait.Success(s.t, "the socket's end", func(context.Context) error {
		select {
		case <-s.ended:
			return nil
		default:
			return errors.New("it is open")
		}
	})
	if !websocket.IsCloseError(s.err, code) {
		s.t.Errorf("the socket ended with %v", s.err)
	}
}

// refusedDial wants a WebSocket to be refused by a Status.
func refusedDial(t *testing.T, subresource, user string, code int32, words string) {
	t.Helper()
	conn, reply, err := dial(t, subresource, user)
	if err == nil {
		_ = conn.Close()
		t.Errorf("%s is not refused", subresource)
		return
	}
	if reply == nil {
		t.Errorf("%s: %v", subresource, err)
		return
	}
	defer func() { _ = reply.Body.Close() }()
	var status metav1.Status
	if err := json.NewDecoder(reply.Body).Decode(&status); err != nil {
		t.Errorf("%s is refused by %v, without a Status: %v", subresource, reply.Status, err)
		return
	}
	if status.Kind != "Status" || status.Code != code || reply.StatusCode != int(code) || !strings.Contains(status.Message, words) {
		t.Errorf("%s is refused by %s, %+v; want %d and %q", subresource, reply.Status, status, code, words)
	}
}
