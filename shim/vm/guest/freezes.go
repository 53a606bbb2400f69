package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// What the control keep-frozen answers, in the agent's words.
const (
	answerFrozen = "frozen"
	answerThawed = "thawed"
)

// Freezes are the controls of guests' writes to their file systems. A freeze may have
// an end, which is in the VM's record before the guest freezes: a shim that starts
// thaws the guest in time.
type Freezes struct {
	table  *table.Table
	agents *Agents
	ends   table.PerVM[*freezeEnd]
}

// NewFreezes returns Freezes.
func NewFreezes(t *table.Table, a *Agents) *Freezes {
	f := &Freezes{table: t, agents: a}
	f.ends.New = func(*table.VM) *freezeEnd { return &freezeEnd{cancel: func() {}} }
	return f
}

// freezeEnd is the end of one guest's freeze.
type freezeEnd struct {
	mu     sync.Mutex
	cancel func()
	// pending says that the freeze has an end, which has not come.
	pending bool
}

// parseLimit reads how long a guest may stay frozen.
func parseLimit(control, limit string) (time.Duration, error) {
	longest, err := time.ParseDuration(limit)
	if err != nil || longest < 0 {
		return 0, fmt.Errorf("%w: %s: %.20q is not a duration such as 10s; 0s has no end", vmerrors.ErrInvalid, control, limit)
	}
	return longest, nil
}

// freeze is [Freezes.Freeze] for a time in words.
func (f *Freezes) freeze(limit string) (control, error) {
	longest, err := parseLimit("freeze", limit)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, v *table.VM) ([]byte, error) { return nil, f.Freeze(ctx, v, longest) }, nil
}

// Freeze stops a guest's writes, and lets them continue after a time unless that is 0.
func (f *Freezes) Freeze(ctx context.Context, v *table.VM, longest time.Duration) error {
	was := f.isPending(v)
	if err := f.endAfter(ctx, v, longest); err != nil {
		return err
	}
	err := f.agents.Of(v).Actions.Freeze(ctx)
	if unable := errors.Is(err, agent.ErrAbsent) || errors.Is(err, agent.ErrDisabled); unable && !was {
		return errors.Join(err, f.endAfter(ctx, v, 0))
	}
	if longest > 0 && !f.isPending(v) { // the end came before the freeze did
		return errors.Join(err, f.endAfter(ctx, v, time.Nanosecond))
	}
	return err // the guest may be frozen nevertheless: the end remains
}

// Frozen reports whether a guest is frozen, also by others.
func (f *Freezes) Frozen(ctx context.Context, v *table.VM) (bool, error) {
	return f.agents.Of(v).Actions.Frozen(ctx)
}

// keep extends a freeze that has an end. It answers whether the guest has been frozen
// since the freeze began: a guest that may write again is not frozen by it.
func (f *Freezes) keep(limit string) (control, error) {
	longest, err := parseLimit(controlKeepFrozen, limit)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		if !f.isPending(v) {
			return []byte(answerThawed), nil
		}
		frozen, err := f.agents.Of(v).Actions.Frozen(ctx)
		if err != nil {
			return nil, err
		}
		if !frozen { // by its agent's own limit, or because the guest has booted again
			return []byte(answerThawed), nil
		}
		if err := f.endAfter(ctx, v, longest); err != nil {
			return nil, err
		}
		return []byte(answerFrozen), nil
	}, nil
}

func (f *Freezes) thaw(ctx context.Context, v *table.VM) ([]byte, error) { return nil, f.Thaw(ctx, v) }

// Thaw lets a guest write again. If that fails, the end of its freeze, if any, comes now, and goes on
// trying: nothing needs the freeze any longer.
func (f *Freezes) Thaw(ctx context.Context, v *table.VM) error {
	err := f.agents.Of(v).Actions.Thaw(ctx)
	if err == nil {
		return f.endAfter(ctx, v, 0)
	}
	if !f.isPending(v) {
		return err
	}
	ctx, cancel := background.AtMost(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(err, f.endAfter(ctx, v, time.Nanosecond))
}

// endAfter replaces the end of a guest's freeze, on disk first; 0 is none.
func (f *Freezes) endAfter(ctx context.Context, v *table.VM, longest time.Duration) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	switch {
	case longest > 0:
		r.Freeze = &record.Freeze{Until: time.Now().Add(longest), Limit: longest}
	case r.Freeze != nil:
		r.Freeze = nil
	default:
		f.schedule(v, 0, false)
		return nil
	}
	if err := f.table.Put(v, r); err != nil {
		return fmt.Errorf("record the end of the freeze: %w", err)
	}
	f.schedule(v, longest, longest > 0)
	return nil
}

// recover schedules the ends of the freezes that an earlier shim process has recorded.
func (f *Freezes) recover() {
	for _, v := range f.table.All("") {
		if r := v.Record(); r.State == record.Running && r.Freeze != nil {
			// If the clock was set back, the guest waits for its limit at most.
			f.schedule(v, min(max(time.Until(r.Freeze.Until), 0), r.Freeze.Limit), true)
		}
	}
}

func (f *Freezes) isPending(v *table.VM) bool {
	end := f.ends.Of(v)
	end.mu.Lock()
	defer end.mu.Unlock()
	return end.pending
}

// schedule replaces the timer of the end of a guest's freeze.
func (f *Freezes) schedule(v *table.VM, after time.Duration, pending bool) {
	end := f.ends.Of(v)
	end.mu.Lock()
	defer end.mu.Unlock()
	end.cancel()
	end.cancel, end.pending = func() {}, pending
	if !pending {
		return
	}
	stop := make(chan struct{})
	end.cancel = sync.OnceFunc(func() { close(stop) })
	f.agents.tasks.Run(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-v.Exited():
		case <-stop:
		case <-time.After(after):
			if end.due(stop) {
				f.thawAt(ctx, v, stop)
			}
		}
	})
}

// due reports whether the end has come: no other one has replaced it.
func (e *freezeEnd) due(stop <-chan struct{}) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-stop:
		return false
	default:
		e.pending = false
		return true
	}
}

// retryThaw is the pause between attempts to end a freeze.
const retryThaw = 5 * time.Second

// thawAt tries until the guest writes again, or its freeze has another end.
func (f *Freezes) thawAt(ctx context.Context, v *table.VM, stop <-chan struct{}) {
	for {
		err := f.agents.Of(v).Actions.Thaw(ctx)
		if err == nil {
			f.forget(ctx, v, stop)
			return
		}
		if ctx.Err() != nil {
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

// forget removes an end that has come from the VM's record, unless another one has
// replaced it. If that fails, the next shim thaws a guest that is not frozen.
func (f *Freezes) forget(ctx context.Context, v *table.VM, stop <-chan struct{}) {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	select {
	case <-stop:
		return
	default:
	}
	r := v.Record()
	r.Freeze = nil
	if err := f.table.Put(v, r); err != nil {
		table.Logger(f.agents.log, r).Warn("removing the end of a freeze from the VM's record failed", "error", err)
	}
}
