// Package vmerrors holds the errors that calls on VM containers return.
//
// It owns each error's kind, by which the CRI front chooses a gRPC code. The
// text around an error, which names the object and the remedy, belongs to the
// package that returns it.
package vmerrors

import "github.com/containerd/errdefs"

// Kinds of failure that are not a single part's. Wrap them with the object that
// they are about.
var (
	// ErrNotFound reports that the node has no such VM container.
	ErrNotFound = errdefs.ErrNotFound.WithMessage("not found")
	// ErrNotVM reports that a container is an ordinary one, which is containerd's.
	ErrNotVM = errdefs.ErrFailedPrecondition.WithMessage("not a VM container")
	// ErrInvalid reports a request that no state of the node would make valid.
	ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid VM")
	// ErrState reports that the container's state does not allow the call.
	ErrState = errdefs.ErrFailedPrecondition.WithMessage("not in this state")
	// ErrRecord reports a container or a sandbox whose record cannot be used. It stays as it is.
	ErrRecord = errdefs.ErrFailedPrecondition.WithMessage("its record cannot be used")
	// ErrRange reports a value outside of what the guest can be given.
	ErrRange = errdefs.ErrOutOfRange.WithMessage("out of range")
	// ErrUnfinished reports that a call ends before the work that it began. The work goes on.
	ErrUnfinished error = unfinished{}
	// ErrBusy reports that as much of a kind is under way as may be at once. A later try can succeed.
	ErrBusy = errdefs.ErrResourceExhausted.WithMessage("too much at once")
	// ErrExists reports that the pod has such a container already. CRI has no code
	// for that; containerd answers with the one of a wrong state.
	ErrExists = errdefs.ErrFailedPrecondition.WithMessage("already exists")
	// ErrUnsupported reports that VMs do not have what containers have.
	ErrUnsupported = errdefs.ErrNotImplemented.WithMessage("not supported")
)

// unfinished has the kind of a deadline that passed, though no context's deadline did.
type unfinished struct{}

func (unfinished) Error() string { return "not finished yet" }

// DeadlineExceeded marks the kind; see errdefs.IsDeadlineExceeded.
func (unfinished) DeadlineExceeded() {}
