package cri

import (
	"context"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
)

// Native is a connection to containerd for calls of the shim's own. Their errors
// are containerd's Go errors, whose codes come back when they reach the client:
// wrapped, a gRPC status would say its code and its own words in the middle of
// the message. Streams keep gRPC's.
func Native(c grpc.ClientConnInterface) grpc.ClientConnInterface { return native{c} }

type native struct{ grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (n native) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return errgrpc.ToNative(n.ClientConnInterface.Invoke(ctx, method, request, reply, opts...))
}
