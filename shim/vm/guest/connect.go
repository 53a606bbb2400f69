package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlConnect joins a client and a TCP port of the pod. Unlike a port-forward, it reports to the client
// when it is connected: it then writes the line [connected]. controller/subresources has the same.
const controlConnect = "connect"

const connected = "connected\n"

// connect joins a client and a TCP port until either has ended.
func (g *Guests) connect(ctx context.Context, v *table.VM, s stream.Streams, number string) error {
	if s.In == nil || s.Out == nil || s.TTY {
		return execFailed(v, errNoStream)
	}
	port, err := parsePort(number)
	if err != nil {
		return execFailed(v, err)
	}
	conn, err := g.dial(ctx, v, port)
	if err != nil {
		return err
	}
	ctx, cancel := during(ctx, v, conn)
	defer cancel()
	return join(ctx, s, conn)
}

// join reports to a client that it is connected, and joins it and the connection until either has ended.
func join(ctx context.Context, s stream.Streams, conn stream.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := io.WriteString(s.Out, connected); err != nil {
		_ = conn.Close()
		return nil // the client has left
	}
	stream.Join(ctx, exchange{s.In, s.Out, cancel}, conn)
	return nil
}

// exchange is a client's streams as one connection, whose close ends the call: an exec has no
// half-closed output.
type exchange struct {
	io.Reader
	io.Writer
	end func()
}

// Close implements io.Closer.
func (e exchange) Close() error {
	e.end()
	return nil
}

var errNoStream = fmt.Errorf("%w: the connection needs streams: use exec -i", vmerrors.ErrInvalid)

// connectWithoutStream refuses a call that has no streams.
func connectWithoutStream(port string) (control, error) {
	if _, err := parsePort(port); err != nil {
		return nil, err
	}
	return func(context.Context, *table.VM) ([]byte, error) { return nil, errNoStream }, nil
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err == nil && port == 0 {
		err = errors.New("0")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %.20q is no port from 1 to 65535", vmerrors.ErrInvalid, text)
	}
	return uint16(port), nil
}
