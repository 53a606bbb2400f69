package stream

import (
	"context"
	"io"
	"sync"

	"github.com/containerd/errdefs"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// runtime connects the library's streams to the VMs.
type runtime struct {
	machines machines
	// ending is cancelled when the server ends. The library does not pass a connection's
	// context to a port-forward.
	ending context.Context
	end    context.CancelFunc

	mu    sync.Mutex // no call begins after the wait for all has begun
	calls sync.WaitGroup
}

var errEnding = errdefs.ErrUnavailable.WithMessage("the shim is ending: try again")

// call runs f, unless the server ends.
func (r *runtime) call(f func() error) error {
	r.mu.Lock()
	if r.ending.Err() != nil {
		r.mu.Unlock()
		return errEnding
	}
	r.calls.Add(1)
	r.mu.Unlock()
	defer r.calls.Done()
	return f()
}

// stop ends the calls.
func (r *runtime) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// Exec implements the library's Runtime.
func (r *runtime) Exec(ctx context.Context, id string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return r.call(func() error {
		return r.machines.Exec(ctx, id, command, Streams{In: in, Out: out, Err: errOut, TTY: tty, Resize: resize})
	})
}

// Attach implements the library's Runtime.
func (r *runtime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return r.call(func() error {
		return r.machines.Attach(ctx, id, Streams{In: in, Out: out, Err: errOut, TTY: tty, Resize: resize})
	})
}

// PortForward implements the library's Runtime.
func (r *runtime) PortForward(_ context.Context, id string, port int32, client io.ReadWriteCloser) error {
	err := r.call(func() error {
		return r.machines.Forward(r.ending, id, uint16(port), client)
	})
	if err != nil {
		// The library closes the stream at once. A client that doesn't know yet that the stream is open
		// would get no other reply, so data waits until the client has the reply.
		_, _ = client.Write(nil)
	}
	return err
}
