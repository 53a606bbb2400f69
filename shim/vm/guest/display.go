package guest

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/record"
)

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
