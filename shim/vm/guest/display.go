package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlDisplay joins a client and the display as [controlConnect] does, unless another client sees the display: then
// it ends with [codeInUse].
const controlDisplay = "display"

// codeInUse is the exit code of a client of the display that must not disturb another; EX_TEMPFAIL of sysexits.h.
// controller/subresources has the same.
const codeInUse = 75

var errInUse = errors.New("another client sees the display")

// viewers counts the clients of a VM's display.
type viewers struct {
	mu sync.Mutex
	n  int
}

// join counts a client. It reports false for one that must be alone, and is not.
func (w *viewers) join(alone bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if alone && w.n > 0 {
		return false
	}
	w.n++
	return true
}

func (w *viewers) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
}

// viewed is a client's connection to a display. Its close no longer counts the client.
type viewed struct {
	*net.UnixConn
	leave func()
}

// Close implements io.Closer.
func (c viewed) Close() error {
	c.leave()
	return c.UnixConn.Close()
}

// view connects a client to a VM's display; alone refuses one that is not the only one.
func (g *Guests) view(v *table.VM, alone bool) (stream.Conn, error) {
	all := g.viewers.Of(v)
	if !all.join(alone) {
		return nil, errInUse
	}
	conn, err := g.dialDisplay(v.Record())
	if err != nil {
		all.leave()
		return nil, err
	}
	return viewed{conn, sync.OnceFunc(all.leave)}, nil
}

// display joins a client and the display, unless it would disturb another client.
func (g *Guests) display(ctx context.Context, v *table.VM, s stream.Streams) error {
	if s.In == nil || s.Out == nil || s.TTY {
		return execFailed(v, errNoStream)
	}
	if !v.Record().Spec.Display {
		return execFailed(v, fmt.Errorf("%w: the VM has no display", vmerrors.ErrInvalid))
	}
	conn, err := g.view(v, true)
	if errors.Is(err, errInUse) {
		return &stream.ExitError{Code: codeInUse}
	}
	if err != nil {
		return execFailed(v, err)
	}
	ctx, cancel := during(ctx, v, conn)
	defer cancel()
	return join(ctx, s, conn)
}

// displayWithoutStream refuses a call that has no streams.
func displayWithoutStream(context.Context, *table.VM) ([]byte, error) { return nil, errNoStream }

// displayPort is VNC's (RFC 6143). A port-forward to this port reaches the display.
const displayPort = 5900

// dialDisplay connects to a VM's display. QEMU may write its folder, so what is
// at the socket's path could lead elsewhere: the connection is trusted only if
// QEMU's user listens there.
func (g *Guests) dialDisplay(r record.Container) (*net.UnixConn, error) {
	address := &net.UnixAddr{Name: g.layout.DisplaySocket(r.ID), Net: "unix"}
	conn, err := net.DialUnix("unix", nil, address)
	if err != nil {
		return nil, fmt.Errorf("connect to the display: %w", err)
	}
	if err := checkPeer(conn, r.Domain.UID); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the display: %w", err), conn.Close())
	}
	return conn, nil
}

// checkPeer refuses a socket on which another user than uid listens.
func checkPeer(conn *net.UnixConn, uid uint32) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, peerErr); err != nil {
		return fmt.Errorf("find the user that listens: %w", err)
	}
	if peer.Uid != uid {
		return fmt.Errorf("user %d listens at its socket, not QEMU's, %d", peer.Uid, uid)
	}
	return nil
}
