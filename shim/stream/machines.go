package stream

import (
	"context"
	"fmt"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// machines are the VMs that streams connect to, implemented by package vm. IDs are
// full IDs. The methods return when the streams end, or soon after ctx ends, which
// is when the client's connection or the server ends. The server sends an error to
// the client, and closes the streams that a method leaves open.
type machines interface {
	// Exec runs a command in a guest. It returns an [ExitError] if the exit code is not 0.
	Exec(ctx context.Context, containerID string, command []string, s Streams) error
	// Attach connects a client to a VM's serial console.
	Attach(ctx context.Context, containerID string, s Streams) error
	// Forward connects a client to a TCP port of a pod.
	Forward(ctx context.Context, sandboxID string, port uint16, client io.ReadWriteCloser) error
}

// Streams are the streams of one client.
type Streams struct {
	// In carries the client's input, Out and Err its output. A stream that the
	// client did not request is nil. With a TTY there is no Err.
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
	// Resize carries the client's terminal sizes and is closed when the client
	// ends; nil if it sends none. It need not be read.
	Resize <-chan Size
}

// Size is a terminal's, in characters.
type Size = remotecommand.TerminalSize

// ExitError is the end of a command with another code than 0. It is not wrapped.
type ExitError struct {
	Code int
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// The other methods implement k8s.io/utils/exec.ExitError, from which the protocol takes
// the code.

// String implements the interface.
func (e *ExitError) String() string { return e.Error() }

// Exited implements the interface.
func (e *ExitError) Exited() bool { return true }

// ExitStatus implements the interface.
func (e *ExitError) ExitStatus() int { return e.Code }
