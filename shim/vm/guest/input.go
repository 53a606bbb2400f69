package guest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

const (
	// MaxInputs bounds the input of commands that the shim holds at once, in bytes. An agent takes a command's whole input
	// before its start.
	MaxInputs = bounds.Inputs
	// NamespaceInputs bounds the input of the commands in a namespace's VMs, in bytes.
	NamespaceInputs = bounds.NamespaceInputs
	// InputTime is how long a client may take to send a command's input.
	InputTime = bounds.InputTime
	// inputStep is the least that an input takes of the budget, in bytes.
	inputStep = 64 << 10
)

// errSlowInput ends the reading of an input.
var errSlowInput = fmt.Errorf("its input did not end within %s: send a file, or run the command with a terminal (-t)", InputTime)

// inputs are what clients send to commands.
type inputs struct{ budget *budget.Budget }

func newInputs() inputs {
	return inputs{budget.New("bytes of input of commands", MaxInputs, NamespaceInputs)}
}

// of returns what reads a command's input to its end when the command has been admitted; nil if there is none.
func (i inputs) of(v *table.VM, in io.Reader) func(context.Context) ([]byte, func(), error) {
	if in == nil {
		return nil
	}
	return func(ctx context.Context) ([]byte, func(), error) {
		grant := i.budget.Grant(v.Record().Sandbox.Value.GetMetadata().GetNamespace())
		data, err := readInput(ctx, in, grant)
		if err != nil {
			grant.Release()
			return nil, nil, err
		}
		return data, grant.Release, nil
	}
}

// readInput reads what a client sends to its end, until ctx ends, or the time is over.
func readInput(ctx context.Context, in io.Reader, grant *budget.Grant) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, InputTime, errSlowInput)
	defer cancel()
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the stream, which ends with the connection
		data, err := readWithin(ctx, in, grant)
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, budget.ErrFull) {
			return nil, fmt.Errorf("%w: %w", vmerrors.ErrBusy, r.err)
		}
		if r.err != nil {
			return nil, fmt.Errorf("read its input: %w", r.err)
		}
		return r.data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readWithin reads at most one byte more than an input can have, and takes from the grant what its buffer has.
func readWithin(ctx context.Context, in io.Reader, grant *budget.Grant) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			size := min(max(2*cap(data), inputStep), agent.MaxInput+1)
			if len(data) == size {
				return data, nil
			}
			if err := grant.Grow(int64(size - cap(data))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := in.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
	}
}
