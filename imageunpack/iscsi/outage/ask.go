package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// ask finds out whether a target answers at a portal. A connection alone tells nothing: the kernel
// accepts it for a process that hangs. So the begin of a login is sent, to look for targets, and any
// answer will do.
func ask(ctx context.Context, portal netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", portal.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTime)); err != nil {
		return err
	}
	var h header
	h[0], h[1] = opLogin|immediate, final|stageSecurity<<2|stageOperational
	h[8] = 0x80 // the session's name is a random one
	text := "InitiatorName=iqn.2026-11.io.nodevirt:watch\x00SessionType=Discovery\x00AuthMethod=None\x00"
	if err := writePDU(conn, h, []byte(text)); err != nil {
		return fmt.Errorf("ask %s: %w", portal, err)
	}
	h, _, err = readPDU(conn)
	if err != nil {
		return fmt.Errorf("ask %s: no answer: %w", portal, err)
	}
	if h.opcode() != opLoginAnswer {
		return errors.New("what answers at " + portal.String() + " is no iSCSI target")
	}
	return nil
}
