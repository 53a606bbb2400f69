package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

// Ports leads to the ports of one pod.
type Ports struct {
	conn httpstream.Connection
	next atomic.Int64
}

// DialPorts connects to a PortForward's URL. The caller closes.
func DialPorts(ctx context.Context, address string) (*Ports, error) {
	conn, err := dial(ctx, address, portforward.ProtocolV1Name)
	if err != nil {
		return nil, err
	}
	return &Ports{conn: conn}, nil
}

// Close cuts all that is joined.
func (p *Ports) Close() error { return p.conn.Close() }

// Lost is closed when the server has gone.
func (p *Ports) Lost() <-chan bool { return p.conn.CloseChan() }

// halfCloser is a connection whose one direction can end before the other.
type halfCloser interface{ CloseWrite() error }

// Join joins local and a port until both have no more to say. Where the port
// doesn't answer, the error says why. Local stays open; a read of it may go on.
func (p *Ports) Join(port uint16, local io.ReadWriter) error {
	headers := map[string]string{
		portforward.StreamType:                 portforward.StreamTypeError,
		portforward.PortHeader:                 strconv.Itoa(int(port)),
		portforward.PortForwardRequestIDHeader: strconv.FormatInt(p.next.Add(1), 10),
	}
	failure, err := open(p.conn, headers)
	if err != nil {
		return err
	}
	defer p.conn.RemoveStreams(failure)
	_ = failure.Close() // nothing is said this way
	headers[portforward.StreamType] = portforward.StreamTypeData
	data, err := open(p.conn, headers)
	if err != nil {
		return err
	}
	defer p.conn.RemoveStreams(data)
	refused := make(chan error, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(failure, maxStatus))
		if len(text) > 0 {
			err = errors.New(string(text))
		}
		refused <- err
	}()
	go func() {
		_, _ = io.Copy(data, local)
		_ = data.Close()
	}()
	_, err = io.Copy(local, data)
	if half, ok := local.(halfCloser); ok {
		_ = half.CloseWrite() // it may have gone already
	}
	_ = data.Reset() // the port has said all: the server need not wait for more
	if err := <-refused; err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	return err
}
