package cri

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/nodevirt/nodevirt/shim/metrics"
)

// call is one call from a client.
type call struct {
	backend *grpc.ClientConn // to containerd
	ctx     context.Context  // for calls on behalf of the client
	stream  grpc.ServerStream
	method  string
	side    metrics.Side // what has answered so far
}

// receive reads the request of a call that has one.
func (c *call) receive() (frame, error) {
	var f frame
	err := c.stream.RecvMsg(&f)
	return f, err
}

// asked records that containerd contributes to the answer.
func (c *call) asked() {
	if c.side == metrics.SideShim {
		c.side = metrics.SideBoth
	}
}

// reply sends an encoded reply.
func (c *call) reply(f frame) error { return c.stream.SendMsg(&f) }

// send encodes and sends a reply.
func (c *call) send(m proto.Message) error {
	f, err := encode(m)
	if err != nil {
		return err
	}
	return c.reply(f)
}

// forward makes the same unary call to containerd and returns its reply. It passes
// header and trailer to the client.
func (c *call) forward(request frame) (frame, error) {
	c.asked()
	var reply frame
	var header, trailer metadata.MD
	err := c.backend.Invoke(c.ctx, c.method, &request, &reply,
		grpc.ForceCodecV2(rawCodec{}), grpc.Header(&header), grpc.Trailer(&trailer))
	c.stream.SetTrailer(trailer)
	if err != nil {
		return nil, err // unwrapped: errors.Join would change its text
	}
	return reply, c.stream.SetHeader(header)
}

// pass answers with containerd's reply.
func (c *call) pass(request frame) error {
	c.side = metrics.SideContainerd // also if it fails
	reply, err := c.forward(request)
	if err != nil {
		return err
	}
	return c.handOn(reply)
}

// handOn answers with containerd's reply unchanged.
func (c *call) handOn(reply frame) error {
	c.side = metrics.SideContainerd
	return c.reply(reply)
}

// outgoing returns a context for calls to containerd on behalf of an incoming call,
// with the same deadline, cancellation and metadata.
func outgoing(ctx context.Context) context.Context {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		return metadata.NewOutgoingContext(ctx, md.Copy())
	}
	return ctx
}
