package cri

import (
	"context"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
)

// Native wraps a connection to containerd for the shim's own calls, so that they
// return containerd's Go errors. A wrapped gRPC status would print its code in the
// middle of the message; Go errors get their code back when they reach the client.
// Streams return gRPC's errors.
func Native(c grpc.ClientConnInterface) grpc.ClientConnInterface { return native{c} }

type native struct{ grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (n native) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return errgrpc.ToNative(n.ClientConnInterface.Invoke(ctx, method, request, reply, opts...))
}
