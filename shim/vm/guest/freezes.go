package guest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// freezes are the controls of guests' writes to their file systems. A freeze may have
// an end, which a restart of the shim forgets.
type freezes struct {
	agents *Agents
	ends   table.PerVM[*freezeEnd]
}

func newFreezes(a *Agents) *freezes {
	f := &freezes{agents: a}
	f.ends.New = func(*table.VM) *freezeEnd { return &freezeEnd{cancel: func() {}} }
	return f
}

// freezeEnd is the end of one guest's freeze.
type freezeEnd struct {
	mu     sync.Mutex
	cancel func()
}

// freeze stops the writes, and lets them continue after a time unless that is 0.
func (f *freezes) freeze(limit string) (control, error) {
	longest, err := time.ParseDuration(limit)
	if err != nil || longest < 0 {
		return nil, fmt.Errorf("%w: freeze: %.20q is not a duration such as 10s; 0s has no end", vmerrors.ErrInvalid, limit)
	}
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		if err := f.agents.Of(v).Actions.Freeze(ctx); err != nil {
			return nil, err
		}
		f.endAfter(v, longest)
		return nil, nil
	}, nil
}

func (f *freezes) thaw(ctx context.Context, v *table.VM) ([]byte, error) {
	f.endAfter(v, 0)
	return nil, f.agents.Of(v).Actions.Thaw(ctx)
}

// endAfter replaces the end of a guest's freeze; 0 is none.
func (f *freezes) endAfter(v *table.VM, longest time.Duration) {
	end := f.ends.Of(v)
	end.mu.Lock()
	defer end.mu.Unlock()
	end.cancel()
	end.cancel = func() {}
	if longest == 0 {
		return
	}
	stop := make(chan struct{})
	end.cancel = sync.OnceFunc(func() { close(stop) })
	f.agents.tasks.Run(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-v.Exited():
		case <-stop:
		case <-time.After(longest):
			f.thawAt(ctx, v, stop)
		}
	})
}

// retryThaw is the pause between attempts to end a freeze.
const retryThaw = 5 * time.Second

// thawAt tries until the guest writes again, or its freeze has another end.
func (f *freezes) thawAt(ctx context.Context, v *table.VM, stop <-chan struct{}) {
	for {
		err := f.agents.Of(v).Actions.Thaw(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		table.Logger(f.agents.log, v.Record()).Warn("ending the freeze of a guest's file systems failed, retrying", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-v.Exited():
			return
		case <-stop:
			return
		case <-time.After(retryThaw):
		}
	}
}
