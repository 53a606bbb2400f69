package stream

import (
	"context"
	"io"
	"time"
)

const (
	// lingerTime is how long a client may send after the port has closed its side.
	// The value is containerd's: older versions of kubectl close only when the server does.
	lingerTime = time.Second
	// probeTime is the pause between two probes whether a client that has closed
	// its side is still connected.
	probeTime = 30 * time.Second
)

// Conn is a connection whose write side can be closed separately.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Join copies between a client and a port, and passes on a close of either side,
// until both sides are closed, either has gone or ctx is done. A port that resets
// its connection is not an error, since on an error kubectl ends all other
// connections too. Join closes the port, and the write side of the client; a read
// of the client may continue until its connection ends.
func Join(ctx context.Context, client io.ReadWriteCloser, port Conn) {
	defer func() { _ = port.Close() }()
	up, down := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := io.Copy(port, client)
		_ = port.CloseWrite() // the port may have closed it already
		up <- err
	}()
	go func() {
		_, err := io.Copy(client, port)
		down <- err
	}()
	probe := time.NewTicker(probeTime)
	defer probe.Stop()
	var late <-chan time.Time
	for upDone, downDone := false, false; !upDone || !downDone; {
		select {
		case <-up: // if it failed, the port accepts no more data, but may send some
			upDone = true
		case err := <-down:
			if err != nil {
				return
			}
			downDone, late = true, time.After(lingerTime)
			_ = client.Close() // its write side; the client may have left
		case <-probe.C:
			if !upDone || downDone {
				continue
			}
			// Writing an empty frame fails if the client has left.
			if _, err := client.Write(nil); err != nil {
				return
			}
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}
