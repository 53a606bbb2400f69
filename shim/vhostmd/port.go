package vhostmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// PortName is the name of the virtio-serial port in the guest, by which vm-dump-metrics finds it.
	PortName = "org.github.vhostmd.1"

	request        = "GET /metrics/XML"
	invalidRequest = "INVALID REQUEST\n\n"
	// maxRequest bounds a line of a request, in bytes.
	maxRequest = 1 << 10
)

// Port answers a guest that asks for metrics on a virtio-serial port: the request is a line and an
// empty line, the answer is the document, which an empty line ends.
type Port struct {
	// Metrics returns the metrics of an answer. It does not wait.
	Metrics func() []Metric
	// Pause is the time between two answers, whatever the guest asks for.
	Pause time.Duration
}

// Serve answers on a connection to the port until the connection or ctx ends. It closes the connection.
func (p Port) Serve(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := bufio.NewReaderSize(conn, maxRequest)
	for {
		valid, err := readRequest(in)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		answer := []byte(invalidRequest)
		if valid {
			document, err := document(p.Metrics())
			if err != nil {
				return err
			}
			answer = append(document, '\n')
		}
		if _, err := conn.Write(answer); err != nil {
			return unlessEnded(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.Pause):
		}
	}
}

// readRequest reads a request, and whether it is valid. It skips what the guest has sent behind an
// invalid one.
func readRequest(in *bufio.Reader) (valid bool, err error) {
	for _, want := range []string{request, ""} {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false, err
		}
		if err != nil || string(bytes.TrimRight(line, "\r\n")) != want {
			_, err := in.Discard(in.Buffered())
			return false, err
		}
	}
	return true, nil
}

// unlessEnded returns the error of a connection that did not just end.
func unlessEnded(ctx context.Context, err error) error {
	ended := ctx.Err() != nil || errors.Is(err, io.EOF)
	if !ended {
		return fmt.Errorf("serve metrics on a port: %w", err)
	}
	return nil
}
