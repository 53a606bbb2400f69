package subresources

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// pair is a socket, and the client at its other end.
func pair(t *testing.T, serve func(*socket)) *websocket.Conn {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := (&call{Request: r, w: w}).upgrade()
		if err != nil {
			t.Error(err)
			return
		}
		serve(s)
	}))
	t.Cleanup(server.Close)
	dialer := websocket.Dialer{Subprotocols: []string{protocol}}
	client, reply, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if got := reply.Header.Get("Sec-Websocket-Protocol"); got != protocol {
		t.Errorf("the protocol is %q", got)
	}
	return client
}

// What a client sends comes back, whatever its size, and the end is a normal one.
func TestSocket(t *testing.T) {
	client := pair(t, func(s *socket) {
		_, err := io.Copy(struct{ io.Writer }{s}, struct{ io.Reader }{io.LimitReader(s, 100_003)})
		s.end(err)
	})
	want := bytes.Repeat([]byte("nodevirt\x00\xff\n"), 10_000)[:100_003]
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 7001)
		if err := client.WriteMessage(websocket.BinaryMessage, rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	var got []byte
	for {
		kind, data, err := client.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			break
		}
		if err != nil || kind != websocket.BinaryMessage {
			t.Fatalf("message of kind %d, %v", kind, err)
		}
		got = append(got, data...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, other than the %d that were sent", len(got), len(want))
	}
}

func TestSocketEndsWithAReason(t *testing.T) {
	client := pair(t, func(s *socket) { s.end(errors.New(strings.Repeat("no such port ", 20))) })
	_, _, err := client.ReadMessage()
	closed, ok := errors.AsType[*websocket.CloseError](err)
	if !ok || closed.Code != websocket.CloseInternalServerErr || !strings.HasPrefix(closed.Text, "no such port") {
		t.Errorf("the socket ends with %v", err)
	}
}

func TestAClientThatLeavesIsTheEnd(t *testing.T) {
	read := make(chan error, 1)
	client := pair(t, func(s *socket) {
		_, err := s.Read(make([]byte, 10))
		read <- err
		s.end(nil)
	})
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := client.WriteMessage(websocket.CloseMessage, message); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the end is read as %v", err)
	}
}
