package subresources

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"gotest.tools/v3/assert"
)

// FuzzCaller sends anything behind a WebSocket's request, as a client of a console or of a USB device may, and has the node
// send anything. The node gets what the messages hold and nothing else, and then both connections end.
func FuzzCaller(f *testing.F) {
	f.Add(append(frame(0x82, "\x00\x00\x00\x00\x44\x00\x00\x00\x00\x00\x00\x00qemu usb-redir"), frame(0x88, "\x03\xe8")...), []byte("hello"))
	f.Add(append(frame(0x02, "one "), frame(0x80, "message")...), []byte{})
	f.Add(frame(0x89, "ping"), []byte("answer"))
	f.Add([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, []byte("longest"))
	var now *fuzzedNode
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now
		defer close(n.done)
		c := &call{Request: r, w: w}
		n.err = c.join(r.Context(), &connection{Reader: n.from, Writer: n, cancel: n.cancel}, func(context.Context) *connection { return nil })
	}))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, sent, answered []byte) {
		n := newFuzzedNode(answered)
		now = n
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		assert.NilError(t, err)
		defer conn.Close()
		assert.NilError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Protocol: %s\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", protocol)
		assert.NilError(t, err)
		head := bufio.NewReader(conn)
		reply, err := http.ReadResponse(head, nil)
		assert.NilError(t, err)
		assert.Equal(t, reply.StatusCode, http.StatusSwitchingProtocols)
		_, _ = conn.Write(sent) // the server may have ended it
		assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, head)
		<-n.done
		assert.NilError(t, n.err)
		if got := n.got.String(); !strings.HasPrefix(payloads(sent), got) {
			t.Errorf("the node got %q", got)
		}
	})
}

// fuzzedNode is a node's end of a connection.
type fuzzedNode struct {
	from   io.Reader
	got    bytes.Buffer
	err    error
	done   chan struct{}
	cancel func()
}

func newFuzzedNode(answer []byte) *fuzzedNode {
	read, write := io.Pipe()
	n := &fuzzedNode{done: make(chan struct{}), cancel: func() { _ = read.Close() }}
	n.from = read
	go func() { _, _ = write.Write(answer) }() // and then it says nothing until the end
	return n
}

func (n *fuzzedNode) Write(p []byte) (int, error) { return n.got.Write(p) }

// frame is a client's frame of less than 126 bytes, with a mask of zeros.
func frame(head byte, text string) []byte {
	return append([]byte{head, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
}

// payloads returns what the data messages among a client's frames hold, up to the first frame that is not whole or not allowed.
func payloads(sent []byte) string {
	var all bytes.Buffer
	for len(sent) >= 2 {
		op, size, rest := sent[0]&0x0f, uint64(sent[1]&0x7f), sent[2:]
		switch {
		case size == 126 && len(rest) >= 2:
			size, rest = uint64(binary.BigEndian.Uint16(rest)), rest[2:]
		case size == 127 && len(rest) >= 8:
			size, rest = binary.BigEndian.Uint64(rest), rest[8:]
		case size >= 126:
			return all.String()
		}
		if len(rest) < 4 {
			break
		}
		mask, data := rest[:4], rest[4:]
		data = data[:min(uint64(len(data)), size)]
		if op == websocket.TextMessage || op == websocket.BinaryMessage || op == 0 {
			for i, b := range data {
				all.WriteByte(b ^ mask[i%4])
			}
		}
		sent = rest[4+len(data):]
	}
	return all.String()
}
