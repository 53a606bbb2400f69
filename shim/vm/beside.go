package vm

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// beside is what of a start goes on beside its phases. The kernel takes 10 to 30
// ms to move a process between cgroups, or a tap between namespaces: as long as
// nobody needs the outcome, nobody has to wait for it.
type beside struct {
	group  errgroup.Group
	ctx    context.Context //nolint:containedctx // that of the one call which the start is
	cancel context.CancelCauseFunc
	made   chan struct{} // closed when the pod's side of the network is there
}

func newBeside(ctx context.Context) *beside {
	b := &beside{made: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// run has do go on beside the phases. One that fails cuts the others.
func (b *beside) run(do func(context.Context) error) {
	b.group.Go(func() error {
		err := do(b.ctx)
		if err != nil {
			b.cancel(err)
		}
		return err
	})
}

// network is run for what [beside.networkMade] waits for.
func (b *beside) network(do func(context.Context) error) {
	b.run(func(ctx context.Context) error {
		if err := do(ctx); err != nil {
			return err
		}
		close(b.made)
		return nil
	})
}

// networkMade waits until the pod's side of the network is there.
func (b *beside) networkMade(ctx context.Context) error {
	select {
	case <-b.made:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits until all of it has ended, and returns why it failed.
func (b *beside) wait() error {
	if b.group.Wait() == nil {
		return nil
	}
	return context.Cause(b.ctx) // the first error: the others may come of it
}

// errEnded is the cause of an end that nothing beside the phases has brought about.
var errEnded = errors.New("the start has ended")

// end cuts what still goes on, waits for it, and returns what had failed before.
func (b *beside) end() error {
	b.cancel(errEnded)
	if err := b.wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}
