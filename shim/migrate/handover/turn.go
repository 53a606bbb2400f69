package handover

import (
	"context"
	"fmt"
)

// turn lets one goroutine at a time change a migration. A goroutine waits no longer
// than its context, since the one before may wait for libvirt.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error { return t.demand(ctx, nil) }

// demand is take, and interrupts goroutines that wait for what need not be waited for any more.
func (t turn) demand(ctx context.Context, interrupt chan<- struct{}) error {
	for {
		select {
		case t <- struct{}{}:
			return nil
		case interrupt <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("wait for the migration's step in progress: %w", context.Cause(ctx))
		}
	}
}

func (t turn) end() { <-t }
