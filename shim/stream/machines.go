package stream

import (
	"context"
	"fmt"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// machines are what streams lead into; package vm's Manager. Ids are whole. The
// methods return when the streams have come to their end, or soon after ctx has,
// which is when the client's connection or the server ends. An error is told to
// the client. What they don't close, the server does.
type machines interface {
	// Exec runs a command in a guest; the error is an [ExitError] where it did
	// not end with 0.
	Exec(ctx context.Context, containerID string, command []string, s Streams) error
	// Attach joins a client and a machine's serial console.
	Attach(ctx context.Context, containerID string, s Streams) error
	// Forward joins a client and a TCP port of a pod.
	Forward(ctx context.Context, sandboxID string, port uint16, client io.ReadWriteCloser) error
}

// Streams are one client's.
type Streams struct {
	// In is what the client sends, Out and Err where it takes what it gets; nil
	// where it doesn't want that stream. With a TTY there is no Err.
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
	// Resize carries the client's terminal sizes and is closed at its end; nil
	// where there are none. It need not be read.
	Resize <-chan Size
}

// Size is a terminal's, in characters.
type Size = remotecommand.TerminalSize

// ExitError is the end of a command with another code than 0. It is not wrapped.
type ExitError struct {
	Code int
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// The rest is k8s.io/utils/exec.ExitError, by which the protocol knows the code.

// String implements the interface.
func (e *ExitError) String() string { return e.Error() }

// Exited implements the interface.
func (e *ExitError) Exited() bool { return true }

// ExitStatus implements the interface.
func (e *ExitError) ExitStatus() int { return e.Code }
