package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	program = 0x20008086
	// maxReply bounds an answer, in bytes: cookies and domains of VMs have some tens of
	// KiB. maxOther bounds the other messages before it.
	maxReply   = 1 << 20
	maxOther   = 64
	headerSize = 28
)

// The procedures.
const (
	procOpen     = 1
	procAuthList = 66
	procAbortJob = 164
	procBegin    = 302
	procPrepare  = 303
	procPerform  = 305
	procFinish   = 306
	procConfirm  = 307
)

// The types of messages.
const (
	typeCall  = 0
	typeReply = 1
)

// ErrBroken is returned by a call on a connection that has ended: libvirtd's own end, or
// a context that ended during a call. libvirtd may have carried out the call.
var ErrBroken = errors.New("the connection to libvirtd has ended")

// Error is an error of libvirtd's.
type Error struct {
	// Code is of the enumeration virErrorNumber.
	Code    int
	Message string
}

func (e *Error) Error() string { return "libvirtd: " + e.Message }

// Conn is a connection to libvirtd. One goroutine at a time uses it. libvirtd ends a
// migration that a connection has prepared if the connection ends.
type Conn struct {
	conn   net.Conn
	serial uint32
	broken error
}

// Dial connects to libvirtd's socket.
func Dial(ctx context.Context, socket string) (*Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to libvirtd: %w", err)
	}
	c := &Conn{conn: conn}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open QEMU's driver of libvirtd at %s: %w", socket, err), conn.Close())
	}
	return c, nil
}

func (c *Conn) open(ctx context.Context) error {
	// libvirtd expects the question for the kind of authentication. The shim's socket
	// has none: only root can open it.
	if _, err := c.call(ctx, procAuthList, nil); err != nil {
		return err
	}
	var e encoder
	e.optional("qemu:///system")
	e.uint(0)
	_, err := c.call(ctx, procOpen, e)
	return err
}

// Close ends the connection, also during a call.
func (c *Conn) Close() { c.conn.Close() }

// call sends a call and returns its answer's decoder.
func (c *Conn) call(ctx context.Context, procedure uint32, arguments encoder) (*decoder, error) {
	if c.broken != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, c.broken)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	body, failed, err := c.exchange(procedure, arguments)
	if err != nil {
		c.broken = err
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	d := &decoder{rest: body}
	if !failed {
		return d, nil
	}
	failure := &Error{Code: int(int32(d.uint()))}
	d.uint() // the part of libvirt
	failure.Message = d.optional()
	if d.err != nil {
		return nil, d.err
	}
	return nil, failure
}

func (c *Conn) exchange(procedure uint32, arguments encoder) (body []byte, failed bool, err error) {
	c.serial++
	var e encoder
	for _, v := range []uint32{headerSize + uint32(len(arguments)), program, 1, procedure, typeCall, c.serial, 0} {
		e.uint(v)
	}
	if _, err := c.conn.Write(append(e, arguments...)); err != nil {
		return nil, false, err
	}
	for range maxOther {
		h, body, err := readMessage(c.conn)
		if err != nil {
			return nil, false, err
		}
		if h.kind == typeReply && h.program == program && h.serial == c.serial && h.procedure == procedure {
			return body, h.status != 0, nil
		}
	}
	return nil, false, fmt.Errorf("%w: %d messages without the answer", errEncoding, maxOther)
}

// header is what precedes a message.
type header struct {
	program, procedure, kind, serial, status uint32
}

// readMessage reads a message. It allocates no more than arrives, rounded up.
func readMessage(r io.Reader) (header, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return header{}, nil, err
	}
	field := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
	size := field(0)
	if size < headerSize || size > maxReply {
		return header{}, nil, fmt.Errorf("%w: a message of %d bytes, the limit is %d", errEncoding, size, maxReply)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(size)-headerSize))
	if err == nil && len(body) < int(size)-headerSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return header{}, nil, err
	}
	return header{program: field(1), procedure: field(3), kind: field(4), serial: field(5), status: field(6)}, body, nil
}
