package guest

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// MaxControls is how many controls of a VM run or wait at once that libvirtd carries out. One runs at a time.
const MaxControls = bounds.Controls

// lane lets the controls of a VM that libvirtd carries out follow each other.
type lane struct {
	turn chan struct{}
	mu   sync.Mutex
	in   int // controls that run or wait
}

func newLane(*table.VM) *lane { return &lane{turn: make(chan struct{}, 1)} }

// enter waits for the control's turn.
func (l *lane) enter(ctx context.Context) (leave func(), err error) {
	if err := l.join(); err != nil {
		return nil, err
	}
	select {
	case l.turn <- struct{}{}:
		return func() {
			<-l.turn
			l.leave()
		}, nil
	case <-ctx.Done():
		l.leave()
		return nil, fmt.Errorf("wait for other controls of the VM: %w", context.Cause(ctx))
	}
}

func (l *lane) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in >= MaxControls {
		return fmt.Errorf("%w: %d controls of the VM run or wait: try again later", vmerrors.ErrBusy, l.in)
	}
	l.in++
	return nil
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in--
}

// queued is a control that waits for others of its VM.
func queued(lanes *table.PerVM[*lane], do control) control {
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		leave, err := lanes.Of(v).enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		return do(ctx, v)
	}
}

// orderedBy marks the calls to libvirtd of a user's control.
func orderedBy(ctx context.Context, v *table.VM) context.Context {
	return domain.Ordered(ctx, v.Record().Sandbox.Value.GetMetadata().GetNamespace())
}
