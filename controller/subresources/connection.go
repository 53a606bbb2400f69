package subresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go's port-forward still has its types
)

// connection is a connection to a port of a pod, over a separate stream. Its owner closes it.
type connection struct {
	httpstream.Stream
	pipe   httpstream.Connection
	failed chan error
}

// maxComplaint bounds a node's message about a connection that failed, in bytes.
const maxComplaint = 4096

// open makes the two streams of Kubernetes' port-forward protocol: one for errors, one for data.
func open(pipe httpstream.Connection, port string) (*connection, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	complaints, err := pipe.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", port, err)
	}
	_ = complaints.Close() // of our half: we have nothing to say
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := pipe.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", port, err)
	}
	c := &connection{Stream: data, pipe: pipe, failed: make(chan error, 1)}
	go func() {
		text, err := io.ReadAll(io.LimitReader(complaints, maxComplaint))
		if len(text) > 0 {
			err = errors.New(string(text))
		}
		c.failed <- err
	}()
	return c, nil
}

// outcome waits for the first end of the connection, and returns the cause if it failed. The node's
// message says more than the error of the stream.
func (c *connection) outcome(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-c.failed:
		if err != nil {
			return err
		}
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close ends the connection in both directions.
func (c *connection) Close() error {
	_ = c.Reset()
	return c.pipe.Close()
}
