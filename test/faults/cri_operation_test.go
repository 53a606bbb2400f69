//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// subject is what a call names.
type subject int

const (
	ofNode subject = iota
	ofPod
	ofVM
)

// target is the id that a call gets.
type target struct {
	id        string
	known     bool         // the model has such a pod or container
	container *vmContainer // of a call about a container that is known
}

// operation is a CRI call as a client of the fuzz makes it.
type operation struct {
	name  string
	about subject
	// do makes the call, and returns the id of what it made.
	do func(ctx context.Context, c *criClient, t target) (made string, err error)
	// answers is the code for the node, or for a target that is known; absent that for any other.
	answers func(*model, target) codes.Code
	absent  codes.Code
	// twice is the code of the second of two that are made at once; nil if it is answers.
	twice func(*model, target) codes.Code
	// races is a code that either of two at once may have as well, since containerd does not put them in
	// an order; OK if none.
	races codes.Code
	// moves is what a call that succeeds changes in the model; nil if it changes nothing.
	moves func(c *criClient, t target, made string)
	// settle brings the pod into one certain state after the call was given up; nil if it never is.
	settle func(ctx context.Context, c *criClient, t target) error
}

// wrong is an answer with the right code and the wrong content.
type wrong struct{ error }

// plain is an operation of whose answer only the code counts.
func plain(name string, about subject, answers func(*model, target) codes.Code, absent codes.Code,
	do func(ctx context.Context, id string) error,
) operation {
	return operation{name: name, about: about, answers: answers, absent: absent,
		do: func(ctx context.Context, _ *criClient, t target) (string, error) { return "", do(ctx, t.id) }}
}

// list is an operation that lists what has the target's id: it, or nothing.
func list(name string, about subject, do func(ctx context.Context, id string) (int, error)) operation {
	return operation{name: name, about: about, answers: always(codes.OK), absent: codes.OK,
		do: func(ctx context.Context, _ *criClient, t target) (string, error) {
			n, err := do(ctx, t.id)
			if err == nil && (n > 1 || t.known != (n == 1)) {
				err = wrong{fmt.Errorf("it lists %d with id %q; one is known: %t", n, t.id, t.known)}
			}
			return "", err
		}}
}

// received counts what a stream lists.
func received[R any](s grpc.ServerStreamingClient[R], err error, count func(*R) int) (n int, _ error) {
	for err == nil {
		var some *R
		if some, err = s.Recv(); err == nil {
			n += count(some)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// byState is the answer about a container that is created, running or exited.
func byState(ofCreated, ofRunning, ofExited codes.Code) func(*model, target) codes.Code {
	return func(_ *model, t target) codes.Code {
		switch t.container.state {
		case created:
			return ofCreated
		case running:
			return ofRunning
		}
		return ofExited
	}
}

// bySandbox is the answer about a pod that is ready or stopped.
func bySandbox(ofReady, ofStopped codes.Code) func(*model, target) codes.Code {
	return func(m *model, _ target) codes.Code {
		if m.sandbox == ready {
			return ofReady
		}
		return ofStopped
	}
}

// byVM is the answer about a pod whose VM runs, and about one in which none does.
func byVM(ofRunning, ofOthers codes.Code) func(*model, target) codes.Code {
	return func(m *model, _ target) codes.Code {
		if m.now() == running {
			return ofRunning
		}
		return ofOthers
	}
}

// always is the answer in each state.
func always(code codes.Code) func(*model, target) codes.Code {
	return func(*model, target) codes.Code { return code }
}
