// Package cli contains what the commands of nodevirt share: connections to the
// node, tables, JSON, progress, and exit codes.
//
// It leaves the commands to their own packages.
package cli

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ExitError ends the program with an exit code. If Err is nil the program prints no error.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Ending returns the exit code for an error of a command, and the message for the user, if any.
func Ending(err error) (code int, message string) {
	if err == nil {
		return 0, ""
	}
	exit, ok := errors.AsType[*ExitError](err)
	switch {
	case !ok:
		return 1, err.Error()
	case exit.Err == nil:
		return exit.Code, ""
	}
	return exit.Code, err.Error()
}

// Plain returns an error of a CRI call without gRPC's prefix.
func Plain(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	return &remoteError{s}
}

// remoteError keeps the gRPC status for callers that need its code.
type remoteError struct{ s *status.Status }

func (e *remoteError) Error() string              { return e.s.Message() }
func (e *remoteError) GRPCStatus() *status.Status { return e.s }

// NotFound reports whether a CRI call failed because its object does not exist.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }
