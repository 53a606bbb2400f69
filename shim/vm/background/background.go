// Package background runs the work that goes on beside CRI calls.
//
// It owns the context and the wait group of that work. What the work does, and
// when it is done, is its caller's.
package background

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Tasks is a group of background tasks that ends as a whole.
type Tasks struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns an empty group.
func New() *Tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &Tasks{ctx: ctx, cancel: cancel}
}

// Context ends when the group is stopped.
func (t *Tasks) Context() context.Context { return t.ctx }

// Run starts a task. The task must return when its context ends.
func (t *Tasks) Run(task func(context.Context)) {
	t.wg.Go(func() { task(t.ctx) })
}

// Retry starts a task that calls try until it reports that it is done or stop
// is closed. A nil stop never closes. Retry waits for the pause before each
// call, and doubles the pause up to its limit.
func (t *Tasks) Retry(p Pause, stop <-chan struct{}, try func(context.Context) (done bool)) {
	t.Run(func(ctx context.Context) {
		for pause := p.First; ; pause = min(2*pause, p.Limit) {
			select {
			case <-ctx.Done():
				return
			case <-stop:
				return
			case <-time.After(pause):
			}
			if try(ctx) {
				return
			}
		}
	})
}

// Stop ends all tasks and waits for them. The caller must start none afterwards.
func (t *Tasks) Stop() {
	t.cancel()
	t.wg.Wait()
}

// Pause is the time between two tries: First before the first one, and up to
// Limit before later ones.
type Pause struct{ First, Limit time.Duration }

// Fixed returns a pause that does not grow.
func Fixed(d time.Duration) Pause { return Pause{First: d, Limit: d} }

// AtMost bounds ctx by a limit of the shim's own. The context's cause
// distinguishes the limit from a client's deadline.
func AtMost(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
