// Package control reads and answers machine controls whose argument is JSON.
//
// It owns the encoding, and the wait for what a control has begun. What a control does is the part's whose control it is, and the types of
// arguments and answers are those of packages hotplug/order and migrate/order.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Read decodes the argument of a control. The error is [vmerrors.ErrInvalid].
func Read[A any](argument string) (A, error) {
	var a A
	if err := json.Unmarshal([]byte(argument), &a); err != nil {
		return a, fmt.Errorf("%w: the argument is not JSON as expected: %w", vmerrors.ErrInvalid, err)
	}
	return a, nil
}

// Answer decodes a control's argument, carries the control out, and encodes its answer as a line.
func Answer[A, R any](ctx context.Context, v *table.VM, argument string, do func(context.Context, *table.VM, A) (R, error)) ([]byte, error) {
	a, err := Read[A](argument)
	if err != nil {
		return nil, err
	}
	r, err := do(ctx, v, a)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

const (
	// settleTime is how long a control waits for the end of what it has begun, and settlePoll the
	// time between two looks.
	settleTime = 10 * time.Second
	settlePoll = 100 * time.Millisecond
)

// Settled returns the answer of look when that is settled, or after a while; gone if the VM ends before.
func Settled[R any](ctx context.Context, v *table.VM, look func() (answer R, settled bool), gone R) (R, error) {
	deadline := time.After(settleTime)
	for {
		if now, settled := look(); settled {
			return now, nil
		}
		select {
		case <-ctx.Done():
			var none R
			return none, ctx.Err()
		case <-deadline:
			now, _ := look()
			return now, nil
		case <-v.Exited():
			return gone, nil
		case <-time.After(settlePoll):
		}
	}
}
