// Package vmerrors holds the errors that calls on VM containers return.
//
// It owns each error's kind, by which the CRI front chooses a gRPC code. The
// text around an error, which names the object and the remedy, belongs to the
// package that returns it.
package vmerrors

import "errors"

// Kinds of failure that are not a single part's. Wrap them with the object that
// they are about.
var (
	// ErrNotFound reports that the node has no such VM container.
	ErrNotFound = errors.New("not found")
	// ErrNotVM reports that a container is an ordinary one, which is containerd's.
	ErrNotVM = errors.New("not a VM container")
	// ErrInvalid reports a request that no state of the node would make valid.
	ErrInvalid = errors.New("invalid VM")
	// ErrState reports that the container's state does not allow the call.
	ErrState = errors.New("not in this state")
	// ErrRange reports a value outside of what the guest can be given.
	ErrRange = errors.New("out of range")
	// ErrUnfinished reports that a call ends before the work that it began. The work goes on.
	ErrUnfinished = errors.New("not finished yet")
	// ErrExists reports that the pod has such a container already.
	ErrExists = errors.New("already exists")
	// ErrUnsupported reports that VMs do not have what containers have.
	ErrUnsupported = errors.New("not supported")
)
