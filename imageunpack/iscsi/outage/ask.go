package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// ask returns an error unless a target answers at a portal. A connection alone is no proof: the kernel
// accepts it even for a process that hangs. So ask sends the first request of a discovery login and
// accepts any answer to it.
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
	h[8] = 0x80 // the session has a random name
	text := "InitiatorName=iqn.2026-11.io.nodevirt:watch\x00SessionType=Discovery\x00AuthMethod=None\x00"
	if err := writePDU(conn, h, []byte(text)); err != nil {
		return fmt.Errorf("ask %s: %w", portal, err)
	}
	h, _, err = readPDU(conn)
	if err != nil {
		return fmt.Errorf("ask %s: no answer: %w", portal, err)
	}
	if h.opcode() != opLoginAnswer {
		return errors.New("the server at " + portal.String() + " is not an iSCSI target")
	}
	return nil
}
