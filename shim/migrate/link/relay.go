package link

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Relay copies between two connections, in both directions, until both have ended or
// ctx ends. It closes both.
func Relay(ctx context.Context, a, b net.Conn) {
	defer closeAll(a, b)
	stop := context.AfterFunc(ctx, func() { closeAll(a, b) })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}

// pass copies from one connection to the other. The end of one direction leaves the
// other; an error ends both.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		closeAll(to, from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		closeAll(to, from)
	}
}

// Forward relays connections that l accepts to a stream of the target, until ctx ends,
// which is no error. It closes l. On the source, libvirt and QEMU connect to l.
func (d *Dialer) Forward(ctx context.Context, l net.Listener, s Stream) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	room := make(chan struct{}, maxStreams)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			closeAll(conn)
			return nil
		case err != nil:
			return fmt.Errorf("accept a connection to relay: %w", err)
		}
		if !enter(room) {
			conn.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-room }()
			to, err := d.Dial(ctx, s)
			if err != nil {
				conn.Close() // the caller sees its stream end, and the next message fails, too
				return
			}
			Relay(ctx, conn, to)
		})
	}
}

// Deliver relays a connection to a unix socket on which QEMU listens. On the target, it
// serves the streams of memory and disks.
func Deliver(ctx context.Context, conn net.Conn, socket string) error {
	to, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connect a migration's stream: %w", err)
	}
	Relay(ctx, conn, to)
	return nil
}
