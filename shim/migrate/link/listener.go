package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Stream is what a connection carries.
type Stream byte

// The streams. Each connection begins with this byte.
const (
	// Control carries package handover's messages.
	Control Stream = 1
	// Memory carries QEMU's migration stream.
	Memory Stream = 2
	// Disks carries NBD, one connection for each disk.
	Disks Stream = 3
)

const (
	// maxStrangers bounds connections that have not completed their handshake.
	maxStrangers = 8
	// maxStreams bounds the peer's connections, of all kinds. A VM has a stream of
	// memory, one for each of up to 26 disks that are copied, and two for messages.
	maxStreams = 32
	// introduction bounds the time until a connection has named its stream.
	introduction = 10 * time.Second
)

// Listener accepts connections of one migration's source.
type Listener struct {
	listener net.Listener
	config   *tls.Config
	serve    func(context.Context, Stream, net.Conn)
}

// NewListener returns a listener on l, which it closes. serve is called for each of the
// peer's connections, in its own goroutine, and does not use conn after it returns.
func NewListener(l net.Listener, own Identity, peer Fingerprint, serve func(ctx context.Context, s Stream, conn net.Conn)) *Listener {
	return &Listener{listener: l, config: own.config(peer), serve: serve}
}

// Run accepts connections until ctx ends, which is no error. Then all connections are
// closed, and the calls of serve have returned.
func (l *Listener) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer l.listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.listener.Close() })
	defer stop()
	strangers, streams := make(chan struct{}, maxStrangers), make(chan struct{}, maxStreams)
	for {
		conn, err := l.listener.Accept()
		switch {
		case ctx.Err() != nil:
			closeAll(conn)
			return nil
		case err != nil:
			return fmt.Errorf("accept a migration's connection: %w", err)
		}
		if !enter(strangers) {
			conn.Close()
			continue
		}
		all.Go(func() {
			defer conn.Close()
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			c, stream, err := l.introduce(ctx, conn)
			<-strangers
			if err != nil || !enter(streams) {
				return
			}
			defer func() { <-streams }()
			defer c.Close()
			l.serve(ctx, stream, c)
		})
	}
}

// introduce completes the handshake and reads the stream's kind.
func (l *Listener) introduce(ctx context.Context, conn net.Conn) (net.Conn, Stream, error) {
	if err := conn.SetDeadline(time.Now().Add(introduction)); err != nil {
		return nil, 0, err
	}
	c := tls.Server(conn, l.config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, 0, err
	}
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return nil, 0, err
	}
	switch s := Stream(kind[0]); s {
	case Control, Memory, Disks:
		return c, s, conn.SetDeadline(time.Time{})
	default:
		return nil, 0, fmt.Errorf("unknown stream %d", s)
	}
}

func enter(room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
		return false
	}
}

func closeAll(conns ...net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// Dialer opens connections to one migration's target.
type Dialer struct {
	config *tls.Config
	dial   func(context.Context) (net.Conn, error)
}

// NewDialer returns a dialer. dial opens a connection to the target's address.
func NewDialer(own Identity, peer Fingerprint, dial func(context.Context) (net.Conn, error)) *Dialer {
	return &Dialer{config: own.config(peer), dial: dial}
}

// Dial opens a connection for a stream.
func (d *Dialer) Dial(ctx context.Context, s Stream) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, introduction)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, d.config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("authenticate the migration's target: %w", err), conn.Close())
	}
	if _, err := c.Write([]byte{byte(s)}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}
