package cri

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

func TestToStatus(t *testing.T) {
	wrapped := func(err error) error {
		return errors.Join(fmt.Errorf("container %q: %w: why", "c", err), errors.New("and undo"))
	}
	for err, want := range map[error]codes.Code{
		vmerrors.ErrInvalid:      codes.InvalidArgument,
		vmerrors.ErrNotFound:     codes.NotFound,
		vmerrors.ErrExists:       codes.FailedPrecondition,
		vmerrors.ErrState:        codes.FailedPrecondition,
		netsetup.ErrNoAddress:    codes.FailedPrecondition,
		netsetup.ErrInUse:        codes.FailedPrecondition,
		persist.ErrInUse:         codes.FailedPrecondition,
		disk.ErrInUse:            codes.FailedPrecondition,
		netsetup.ErrUnsuited:     codes.FailedPrecondition,
		iscsi.ErrPortTaken:       codes.FailedPrecondition,
		iscsi.ErrUnavailable:     codes.Unavailable,
		domain.ErrUnavailable:    codes.Unavailable,
		context.Canceled:         codes.Canceled,
		context.DeadlineExceeded: codes.DeadlineExceeded,
		// containerd's client, and its CRI.
		errdefs.ErrNotFound:                           codes.NotFound,
		errdefs.ErrAlreadyExists:                      codes.AlreadyExists,
		status.Error(codes.ResourceExhausted, "full"): codes.ResourceExhausted,
		status.Error(codes.NotFound, "gone"):          codes.NotFound,
		errors.New("anything else"):                   codes.Unknown,
	} {
		for _, err := range []error{err, wrapped(err)} {
			got := status.Convert(toStatus(err))
			if got.Code() != want {
				t.Errorf("%v: %v, want %v", err, got.Code(), want)
			}
			if _, ok := err.(interface{ GRPCStatus() *status.Status }); !ok && got.Message() != err.Error() {
				t.Errorf("%v: message %q", err, got.Message())
			}
		}
	}
	if err := toStatus(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	original := status.Error(codes.NotFound, "gone")
	if got := toStatus(original); got.Error() != original.Error() {
		t.Errorf("a status changes: %v", got)
	}
}
