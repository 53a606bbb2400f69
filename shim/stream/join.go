package stream

import (
	"context"
	"io"
	"time"
)

const (
	// lingerTime is what a client may go on to send after a port has said all. It is
	// containerd's: older kubectls close only when the server does.
	lingerTime = time.Second
	// probeTime is the pause between two looks whether a client that has sent all
	// is still there to hear the answer.
	probeTime = 30 * time.Second
)

// Conn is a connection whose directions end each for itself.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Join passes on what a client and a port say to each other, and the end of
// either, until both have said all, either has gone or ctx is done. A port that
// resets its connection is no error: for one, kubectl gives up all others too. It
// closes the port, and the client's direction; a read of the client may go on
// until its connection ends.
func Join(ctx context.Context, client io.ReadWriteCloser, port Conn) {
	defer func() { _ = port.Close() }()
	up, down := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := io.Copy(port, client)
		_ = port.CloseWrite() // it may have closed already
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
		case <-up: // where it failed the port takes no more, and may have more to say
			upDone = true
		case err := <-down:
			if err != nil {
				return
			}
			downDone, late = true, time.After(lingerTime)
			_ = client.Close() // its write half; it may have gone
		case <-probe.C:
			if !upDone || downDone {
				continue
			}
			// An empty frame tells a client that listens from one that has gone.
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
