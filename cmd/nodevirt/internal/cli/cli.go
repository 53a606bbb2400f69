// Package cli holds what the commands of nodevirt share: how they reach the
// node, how they write tables, JSON and progress, and how they end.
//
// It owns no command and no noun; each of those has a package of its own.
package cli

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ExitError ends the program with a code of its own. Without Err nothing is
// said: the command has told all there is.
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

// Ending returns the exit code that an error of a command means, and what to
// tell the user, if anything.
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

// Plain is an error of a CRI call without gRPC's own words.
func Plain(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	return &remoteError{s}
}

// remoteError still is a gRPC status to those who ask for its code.
type remoteError struct{ s *status.Status }

func (e *remoteError) Error() string              { return e.s.Message() }
func (e *remoteError) GRPCStatus() *status.Status { return e.s }

// NotFound tells whether a CRI call failed since what it asked for isn't there.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }
