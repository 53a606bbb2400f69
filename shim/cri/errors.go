package cri

import (
	"context"
	"errors"
	"syscall"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// codesOf are the gRPC codes of the parts' errors, the first that matches.
var codesOf = []struct {
	err  error
	code codes.Code
}{
	{vmerrors.ErrInvalid, codes.InvalidArgument},
	{domain.ErrUnsupported, codes.InvalidArgument},
	{vmerrors.ErrUnfinished, codes.DeadlineExceeded},
	{vmerrors.ErrNotFound, codes.NotFound},
	{vmerrors.ErrRange, codes.OutOfRange},
	{vmerrors.ErrExists, codes.FailedPrecondition}, // as containerd has it
	{vmerrors.ErrUnsupported, codes.Unimplemented},
	{vmerrors.ErrState, codes.FailedPrecondition},
	{netsetup.ErrNoAddress, codes.FailedPrecondition},
	{netsetup.ErrInUse, codes.FailedPrecondition},
	{netsetup.ErrUnsuited, codes.FailedPrecondition},
	{netsetup.ErrPortTaken, codes.FailedPrecondition},
	{iscsi.ErrPortTaken, codes.FailedPrecondition},
	{iscsi.ErrUnavailable, codes.Unavailable},
	{persist.ErrInUse, codes.FailedPrecondition},
	{disk.ErrInUse, codes.FailedPrecondition},
	{agent.ErrInvalid, codes.InvalidArgument},
	{agent.ErrAbsent, codes.FailedPrecondition},
	{agent.ErrNoTerminal, codes.FailedPrecondition},
	{agent.ErrDisabled, codes.FailedPrecondition},
	{agent.ErrBusy, codes.ResourceExhausted},
	{agent.ErrSilent, codes.Unavailable},
	{agent.ErrGone, codes.Unavailable},
	{agent.ErrGarbled, codes.Internal},
	{agent.ErrNoProgram, codes.Unknown}, // as containerd
	{syscall.ENOSPC, codes.ResourceExhausted},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded}, // the client's
	{domain.ErrUnavailable, codes.Unavailable},
}

// toStatus gives an error its gRPC code. One that containerd answered with stays
// as it is.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range codesOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return errgrpc.ToGRPC(err)
}
