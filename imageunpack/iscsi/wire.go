package iscsi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// request is the header of a request on tgtd's management socket (struct tgtadm_req of tgt 1.0, in the
// node's byte order). A zero-terminated text follows.
type request struct {
	Mode, Op   uint32
	Driver     [64]byte
	Length     uint32 // of header and text
	Target     int32
	Session    uint64
	LUN        uint64
	Connection uint32
	Host       uint32
	DeviceType uint32 // 0 is a disk
	Direction  uint32 // for accounts: 0 is the initiator's
	Pack       uint32
	Force      uint32
}

// response is the header of the answer (struct tgtadm_rsp).
type response struct{ Code, Length uint32 }

// Modes and operations (enum tgtadm_mode and tgtadm_op).
const (
	modeSystem     = 0
	modeTarget     = 1
	modeDevice     = 2
	modePortal     = 3
	modeConnection = 6
	modeAccount    = 7

	opNew    = 0
	opDelete = 1
	opShow   = 2
	opBind   = 3
	opUnbind = 4
	opUpdate = 5
)

const (
	// callTime is how long a call may take: tgtd answers at once.
	callTime = 5 * time.Second
	// maxText is tgtd's limit for the text; maxAnswer is far more than a node's targets need.
	maxText   = 8 << 10
	maxAnswer = 64 << 20
)

// call makes one request. tgtd closes the connection after its answer.
func (d *Daemon) call(ctx context.Context, r request, text string) (string, error) {
	return d.exchange(ctx, r, text, func(*net.UnixConn) error { return nil })
}

// exchange is call that calls connected first. It sends the request even if ctx or connected fail
// meanwhile: a connection that is closed without one costs tgtd a processor.
func (d *Daemon) exchange(
	ctx context.Context, r request, text string, connected func(*net.UnixConn) error,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	failed := connected(conn)
	answer, err := exchange(conn, r, text)
	if failed != nil {
		return "", failed
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: no answer: %w", ErrUnavailable, ctx.Err())
	}
	return answer, err
}

func (d *Daemon) dial(ctx context.Context) (*net.UnixConn, error) {
	path := d.opts.Socket + ".0"
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errAway, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: check that tgtd runs on this node (systemd's unit nodevirt-tgtd; "+
			"Debian's package tgt), and whether it has the socket %s", ErrUnavailable, err, path)
	}
	return conn.(*net.UnixConn), nil
}

func exchange(conn io.ReadWriter, r request, text string) (string, error) {
	copy(r.Driver[:], "iscsi")
	var b bytes.Buffer
	if text != "" {
		text += "\x00"
	}
	if len(text) > maxText {
		return "", fmt.Errorf("a request of %d bytes is too long for tgtd", len(text))
	}
	r.Length = uint32(binary.Size(r) + len(text))
	if err := binary.Write(&b, binary.NativeEndian, r); err != nil {
		return "", err
	}
	b.WriteString(text)
	if _, err := conn.Write(b.Bytes()); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var head response
	if err := binary.Read(conn, binary.NativeEndian, &head); err != nil {
		return "", fmt.Errorf("%w: no answer: %w", ErrUnavailable, err)
	}
	if head.Code != 0 {
		return "", code(head.Code)
	}
	size := int64(head.Length) - int64(binary.Size(head))
	if size < 0 || size > maxAnswer {
		return "", fmt.Errorf("invalid answer of tgtd: %d bytes", size)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return "", fmt.Errorf("%w: incomplete answer: %w", ErrUnavailable, err)
	}
	return string(bytes.TrimRight(answer, "\x00")), nil
}

// code is why tgtd refused a request (enum tgtadm_errno).
type code uint32

const (
	codeNoTarget      code = 4
	codeNoLUN         code = 5
	codeNoConnection  code = 7
	codeNoUser        code = 15
	codeTargetActive  code = 19
	codeLUNActive     code = 20
	codeACLNotPresent code = 13
)

func (c code) Error() string {
	text := map[code]string{
		1: "unknown error", 2: "out of memory", 3: "no such driver", codeNoTarget: "no such target",
		codeNoLUN: "no such logical unit, or its file can't be opened", 6: "no such session", codeNoConnection: "no such connection",
		8: "no such binding", 9: "the target exists", 10: "the logical unit exists", 11: "the binding exists",
		12: "the access rule exists", codeACLNotPresent: "no such access rule", 14: "the account exists",
		codeNoUser: "no such account", 16: "too many accounts", 17: "invalid request",
		18: "the target has an outgoing account", codeTargetActive: "the target is in use",
		codeLUNActive: "the logical unit is in use", 21: "the driver is in use",
		22: "the operation is not supported", 23: "unknown parameter", 24: "the device prevents its removal",
	}[c]
	if text == "" {
		text = fmt.Sprintf("error %d", uint32(c))
	}
	return "tgtd refuses: " + text
}

// Is makes a refusal due to open connections an ErrBusy.
func (c code) Is(target error) bool {
	return target == ErrBusy && (c == codeTargetActive || c == codeLUNActive)
}

// unless returns nil for refusals which mean that there is nothing to do.
func unless(err error, fine ...code) error {
	for _, c := range fine {
		if errors.Is(err, c) {
			return nil
		}
	}
	return err
}
