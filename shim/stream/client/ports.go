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

// Ports is a connection to the ports of a pod.
type Ports struct {
	conn httpstream.Connection
	next atomic.Int64
}

// DialPorts connects to the URL of a PortForward. The caller closes the result.
func DialPorts(ctx context.Context, address string) (*Ports, error) {
	conn, err := dial(ctx, address, portforward.ProtocolV1Name)
	if err != nil {
		return nil, err
	}
	return &Ports{conn: conn}, nil
}

// Close ends all forwarded connections.
func (p *Ports) Close() error { return p.conn.Close() }

// Lost returns a channel that is closed when the connection to the server ends.
func (p *Ports) Lost() <-chan bool { return p.conn.CloseChan() }

// halfCloser is a connection whose write side can be closed separately.
type halfCloser interface{ CloseWrite() error }

// Join copies between local and a port until both sides are closed. It returns an
// error if the port does not answer. It leaves local open; a read of local may continue.
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
	_ = failure.Close() // the client sends nothing on this stream
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
		_ = half.CloseWrite() // local may be closed already
	}
	_ = data.Reset() // the port has closed its side: the server need not wait
	if err := <-refused; err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	return err
}
