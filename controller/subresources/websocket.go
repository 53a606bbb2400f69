package subresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// protocol is KubeVirt's: bytes in binary messages, in both directions.
const protocol = "plain.kubevirt.io"

const (
	// pingEvery keeps proxies in between from taking a silent console for a dead one.
	pingEvery = 30 * time.Second
	// controlTime bounds the writing of a ping or of the end.
	controlTime = 5 * time.Second
	// chunk is how much of a stream goes into one message, in bytes.
	chunk = 32 << 10
)

// socket is a caller's WebSocket as a stream. One goroutine may read and one may write.
type socket struct {
	*websocket.Conn
	message io.Reader // what is left of the one that is read
	writing sync.Mutex
	stall   time.Duration // how long the caller can leave data unread
}

// upgrade makes a stream of the call. What went wrong before that can be replied.
func (c *call) upgrade() (*socket, error) {
	upgrader := websocket.Upgrader{
		Subprotocols: []string{protocol}, ReadBufferSize: chunk, WriteBufferSize: chunk,
		// The API server's proxy is the caller, whatever page of whatever origin asked it: it was
		// authenticated by more than a browser sends by itself.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	conn, err := upgrader.Upgrade(c.w, c.Request, nil)
	if err != nil {
		return nil, err
	}
	return &socket{Conn: conn, stall: bounds.StreamStall}, nil
}

// Read implements io.Reader: the end is io.EOF if the caller ended it as one should, or left.
func (s *socket) Read(p []byte) (int, error) {
	for {
		if s.message == nil {
			_, message, err := s.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, err
			}
			s.message = message
		}
		n, err := s.message.Read(p)
		if errors.Is(err, io.EOF) {
			s.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Write implements io.Writer. It fails if the caller reads nothing for too long.
func (s *socket) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return 0, err
	}
	if err := s.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// keep pings until ctx ends.
func (s *socket) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingEvery):
			if s.WriteControl(websocket.PingMessage, nil, time.Now().Add(controlTime)) != nil {
				return
			}
		}
	}
}

// drain reads what the caller still sends, to the end.
func (s *socket) drain() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{s}) }

// end closes the socket: normally, or with the reason why not. Before, it waits until the caller has read
// all and left, for which seen is closed: to close a connection with unread data is to reset it, and
// a reset discards what the caller has not read.
func (s *socket) end(err error, seen <-chan struct{}) {
	code, text := websocket.CloseNormalClosure, ""
	if err != nil {
		const most = 123 // bytes that a control frame has for it
		code, text = websocket.CloseInternalServerErr, err.Error()
		text = text[:min(len(text), most)]
	}
	_ = s.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(controlTime))
	_ = s.SetReadDeadline(time.Now().Add(controlTime))
	<-seen
	_ = s.Close()
}
