package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxMessage bounds a message, in bytes. A domain's XML is the largest part: some
// 10 KiB, and 200 KiB for a VM with all the disks and networks that a pod can have.
const maxMessage = 1 << 20

// kind is what a message says.
type kind string

// The source's requests.
const (
	kindDefine   kind = "define"    // Shape → XML
	kindPrepare  kind = "prepare"   // Cookie → Cookie
	kindAlive    kind = "alive"     // while the memory is copied
	kindHandOver kind = "hand-over" // Cookie → taken or refused
	kindOutcome  kind = "outcome"   // → taken or refused
)

// The target's answers.
const (
	kindDone    kind = "done"
	kindTaken   kind = "taken"
	kindRefused kind = "refused"
)

// message is a request or an answer: a length of four bytes, then JSON.
type message struct {
	Kind      kind   `json:"kind"`
	Version   int    `json:"version"`
	Migration string `json:"migration"`
	VM        string `json:"vm"`
	// Shape is the part of the source's domain that the target must repeat.
	Shape []byte `json:"shape,omitempty"`
	// XML is the target's domain.
	XML string `json:"xml,omitempty"`
	// Cookie is libvirt's, from the phase before.
	Cookie []byte `json:"cookie,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// errProtocol is returned for a message that the peer must not send.
var errProtocol = errors.New("the peer breaks the migration's protocol")

// wire sends and receives messages on a connection. One goroutine at a time uses it.
type wire struct{ conn net.Conn }

func (w wire) send(m message, within time.Duration) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return fmt.Errorf("message %s has %d bytes, the limit is %d", m.Kind, len(text), maxMessage)
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, err := w.conn.Write(frame); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

func (w wire) receive(within time.Duration) (message, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return message{}, err
	}
	return readMessage(w.conn)
}

// readMessage reads one message. It does not allocate more than the limit, nor more
// than arrives, rounded up.
func readMessage(r io.Reader) (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, fmt.Errorf("receive a message: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return message{}, fmt.Errorf("%w: a message of %d bytes, the limit is %d", errProtocol, size, maxMessage)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(text) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return message{}, fmt.Errorf("receive a message: %w", err)
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return message{}, fmt.Errorf("%w: %w", errProtocol, err)
	}
	return m, nil
}
