package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/record"
)

// displayPort is VNC's (RFC 6143), by which a port-forward gets to the display.
const displayPort = 5900

func (m *Manager) displayDir(id string) string { return filepath.Join(m.DisplayDir, id) }

func (m *Manager) displaySocket(id string) string { return filepath.Join(m.displayDir(id), "vnc") }

// makeDisplay makes the folder in which QEMU makes the socket, for nobody else
// but root.
func (l *launch) makeDisplay(context.Context) error {
	if !l.rec.Spec.Display {
		return nil
	}
	dir := l.displayDir(l.rec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the display's folder: %w", err)
	}
	if err := os.Lchown(dir, int(l.rec.Domain.UID), int(l.rec.Domain.GID)); err != nil {
		return fmt.Errorf("give the display's folder to QEMU: %w", err)
	}
	return nil
}

func (l *launch) removeDisplay(context.Context) error {
	return os.RemoveAll(l.displayDir(l.rec.ID))
}

// dialDisplay connects to a machine's display. Its folder is QEMU's: what is at
// the socket's place could lead elsewhere, and is trusted only if QEMU's user
// listens there.
func (m *Manager) dialDisplay(r record.Container) (*net.UnixConn, error) {
	address := &net.UnixAddr{Name: m.displaySocket(r.ID), Net: "unix"}
	conn, err := net.DialUnix("unix", nil, address)
	if err != nil {
		return nil, fmt.Errorf("connect to the display: %w", err)
	}
	if err := checkPeer(conn, r.Domain.UID); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the display: %w", err), conn.Close())
	}
	return conn, nil
}

// checkPeer refuses a socket on which anybody but a user listens.
func checkPeer(conn *net.UnixConn, uid uint32) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, peerErr); err != nil {
		return fmt.Errorf("ask who listens: %w", err)
	}
	if peer.Uid != uid {
		return fmt.Errorf("user %d listens at its socket, not QEMU's, %d", peer.Uid, uid)
	}
	return nil
}
