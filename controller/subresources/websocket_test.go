package subresources

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// ends ends a socket that nothing reads any more.
func ends(s *socket, err error) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.drain()
	}()
	s.end(err, left)
}

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
		ends(s, err)
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

// A caller gets all that was sent to it, and a normal end, also if it has sent what was not read.
func TestSocketEndsAfterItsCaller(t *testing.T) {
	const size = 8 << 20
	sent := make(chan struct{})
	client := pair(t, func(s *socket) {
		<-sent
		go func() { _, _ = s.Write(make([]byte, size)); ends(s, nil) }()
	})
	if err := client.WriteMessage(websocket.BinaryMessage, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	close(sent)
	time.Sleep(100 * time.Millisecond) // the server has closed meanwhile, if it does not wait
	_, data, err := client.ReadMessage()
	if err != nil || len(data) != size {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if _, _, err := client.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the socket ends with %v", err)
	}
}

func TestSocketEndsWithAReason(t *testing.T) {
	client := pair(t, func(s *socket) { ends(s, errors.New(strings.Repeat("no such port ", 20))) })
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
		ends(s, nil)
	})
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := client.WriteMessage(websocket.CloseMessage, message); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the end is read as %v", err)
	}
}
