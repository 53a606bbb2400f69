package cri

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/nodevirt/nodevirt/shim/metrics"
)

// backendStream is a call to containerd in progress. cancel ends it, with the error
// that its client gets. The creator must call cancel.
type backendStream struct {
	grpc.ClientStream
	ctx    context.Context // ends only by cancel; the stream's own ends with the stream
	cancel context.CancelCauseFunc
}

// open makes the same call to containerd, as a stream.
func (c *call) open() (*backendStream, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := c.backend.NewStream(ctx, both, c.method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		cancel(err)
		return nil, err
	}
	return &backendStream{stream, ctx, cancel}, nil
}

// ask opens a stream for the one request f.
func (c *call) ask(f frame) (*backendStream, error) {
	c.asked()
	backend, err := c.open()
	if err != nil {
		return nil, err
	}
	// If that failed because containerd answered early, its replies carry the error.
	if err := backend.SendMsg(&f); err != nil && !errors.Is(err, io.EOF) {
		backend.cancel(err)
		return nil, err
	}
	if err := backend.CloseSend(); err != nil {
		backend.cancel(err)
		return nil, err
	}
	return backend, nil
}

// passStream forwards a call of any kind, frame by frame.
func (c *call) passStream() error {
	c.side = metrics.SideContainerd
	backend, err := c.open()
	if err != nil {
		return err
	}
	defer backend.cancel(nil)
	go func() {
		for {
			f, err := c.receive()
			if errors.Is(err, io.EOF) {
				_ = backend.CloseSend() // never fails
				return
			}
			if err != nil {
				backend.cancel(err)
				return
			}
			if backend.SendMsg(&f) != nil {
				return // the replies carry the error
			}
		}
	}()
	return c.replies(backend, c.reply)
}

// replies passes each reply of a stream to send, and header and trailer to the client.
func (c *call) replies(backend *backendStream, send func(frame) error) error {
	// Without a header the call failed at once, and RecvMsg returns the error.
	if header, err := backend.Header(); err == nil && header != nil {
		// If the shim has sent a message before, the header is sent too.
		_ = c.stream.SendHeader(header)
	}
	for {
		var f frame
		if err := backend.RecvMsg(&f); err != nil {
			c.stream.SetTrailer(backend.Trailer())
			return c.endOf(backend, err)
		}
		if err := send(f); err != nil {
			return err
		}
	}
}

// endOf returns why there are no more replies: err, or the cause of the cancellation.
func (c *call) endOf(backend *backendStream, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if backend.ctx.Err() != nil && c.ctx.Err() == nil {
		return context.Cause(backend.ctx)
	}
	return err
}
