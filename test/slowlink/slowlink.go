// Package slowlink forwards connections as a network link with a delay and a rate would. It is for
// kernels without netem. It does not model TCP's slow start or lost packets.
package slowlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Link says how slow a link is. The zero value is as fast as the machine.
type Link struct {
	RoundTrip time.Duration
	Rate      int64 // bytes per second in each direction, for all connections together; 0: no limit
}

func (link Link) String() string {
	if link == (Link{}) {
		return "loopback"
	}
	return fmt.Sprintf("a link of %v and %d Mbit/s", link.RoundTrip, link.Rate*8/1_000_000)
}

const (
	chunk  = 16 << 10 // bytes, which connections send in turns
	queued = 64       // chunks on their way, for each connection and direction
)

// Serve forwards each connection that arrives at l to a connection from dial, until ctx is done. It closes l.
func (link Link) Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error {
	there, back := &lane{link: link}, &lane{link: link}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return l.Close()
	})
	group.Go(func() error {
		for {
			near, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("accept on %s: %w", l.Addr(), err)
			}
			group.Go(func() error {
				defer near.Close()
				time.Sleep(link.RoundTrip) // the handshake's
				far, err := dial(ctx)
				if err != nil {
					return nil // the client sees that its connection ends
				}
				defer far.Close()
				defer context.AfterFunc(ctx, func() { _ = errors.Join(near.Close(), far.Close()) })()
				var both sync.WaitGroup
				both.Go(func() { there.carry(far, near) })
				both.Go(func() { back.carry(near, far) })
				both.Wait()
				return nil
			})
		}
	})
	return group.Wait()
}

// lane is one direction of a link.
type lane struct {
	link Link
	mu   sync.Mutex
	free time.Time // when all bytes before have left
}

// arrival is when n bytes that are sent now arrive.
func (l *lane) arrival(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	if l.link.Rate > 0 {
		l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.link.Rate))
	}
	return l.free.Add(l.link.RoundTrip / 2)
}

// packet is data that arrive at a time.
type packet struct {
	at   time.Time
	data []byte
}

// carry copies from src to dst until src ends or one of them fails, and ends dst then.
func (l *lane) carry(dst, src net.Conn) {
	packets := make(chan packet, queued)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, chunk)
			n, err := src.Read(data)
			if n > 0 {
				packets <- packet{l.arrival(n), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for p := range packets {
		if failed != nil {
			continue // the reader ends with src
		}
		time.Sleep(time.Until(p.at))
		if _, failed = dst.Write(p.data); failed != nil {
			_ = src.Close()
		}
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok && failed == nil {
		_ = half.CloseWrite()
	}
}
