package cri

import (
	"errors"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
)

// toStatus returns err as a gRPC status with the code of its kind, which the
// package that made the error declares with errdefs. Of several kinds the first
// in the error's tree decides: an error comes before that of its undo.
//
// A status that containerd answered with keeps its code, its text and its details.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	kind := errdefs.Resolve(err)
	switch {
	case errdefs.IsInvalidArgument(kind):
		// A request that can't be met stays so, whatever else failed.
	case errors.Is(err, syscall.ENOSPC):
		kind = errdefs.ErrResourceExhausted // the node's disk is full, and other calls failed after that
	case errdefs.IsUnknown(kind):
		if s, ok := status.FromError(err); ok {
			return s.Err()
		}
	}
	return status.Error(status.Code(errgrpc.ToGRPC(kind)), err.Error())
}
