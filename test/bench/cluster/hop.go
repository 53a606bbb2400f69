package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/migrate/link"
)

// hopBytes is how much is sent over one TLS connection.
const hopBytes = 512 << 20

// hop measures one connection between the nodes like those of migrations, but without QEMU and sockets at
// its ends, in MiB a second.
func (r *rig) hop(ctx context.Context) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	source, target := r.Nodes()[0], r.Nodes()[1]
	own, err := link.NewIdentity()
	if err != nil {
		return 0, err
	}
	peer, err := link.NewIdentity()
	if err != nil {
		return 0, err
	}
	l, err := target.Listen(ctx, "tcp", r.address(target)+":0")
	if err != nil {
		return 0, fmt.Errorf("listen on a node: %w", err)
	}
	received := make(chan error, 1)
	listener := link.NewListener(l, peer, own.Fingerprint(), func(_ context.Context, _ link.Stream, conn net.Conn) {
		_, err := io.CopyN(io.Discard, conn, hopBytes)
		received <- err
	})
	ctx, stop := context.WithCancel(ctx)
	var serves sync.WaitGroup
	defer serves.Wait()
	defer stop()
	serves.Go(func() { _ = listener.Run(ctx) })
	conn, err := link.NewDialer(own, peer.Fingerprint(), func(ctx context.Context) (net.Conn, error) {
		return source.Dial(ctx, "tcp", l.Addr().String())
	}).Dial(ctx, link.Memory)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	block := make([]byte, 1<<20)
	begun := time.Now()
	for range hopBytes / len(block) {
		if _, err := conn.Write(block); err != nil {
			return 0, fmt.Errorf("send between the nodes: %w", err)
		}
	}
	select {
	case err = <-received:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return hopBytes / (1 << 20) / time.Since(begun).Seconds(), err
}
