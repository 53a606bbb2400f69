package table

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// VM is one VM container. Any goroutine may read its record; only the one that
// has its turn replaces the record, as a whole.
type VM struct {
	turn chan struct{}
	rec  atomic.Pointer[record.Container]
	// exited is closed when the record says that the guest has ended, or the VM leaves the table.
	exited chan struct{}
	exit   sync.Once
	// gone is set, by the goroutine that has the turn, when the VM leaves the table.
	gone atomic.Bool
	// waiting is the number of calls that wait for the VM's turn.
	waiting   atomic.Int32
	recovered bool
	refused   error // why the VM's record cannot be used
	dispute   atomic.Pointer[string]
	disowned  atomic.Pointer[string]

	values struct {
		sync.Mutex
		of map[any]any
	}
}

// NewVM returns a VM that is in no table yet.
func NewVM(r record.Container) *VM {
	v := &VM{turn: make(chan struct{}, 1), exited: make(chan struct{})}
	v.rec.Store(&r)
	if r.State == record.Exited {
		v.end()
	}
	return v
}

func (v *VM) end() { v.exit.Do(func() { close(v.exited) }) }

// Record returns the VM's record as it was last published.
func (v *VM) Record() record.Container { return *v.rec.Load() }

// Exited returns a channel that is closed once the record says that the guest has ended, or the VM
// has left the table: nothing waits for a VM that is gone.
func (v *VM) Exited() <-chan struct{} { return v.exited }

// Recovered reports whether an earlier shim process made the container.
func (v *VM) Recovered() bool { return v.recovered }

// Lock waits for the VM's turn, or for ctx. For a VM that left the table
// meanwhile it returns ErrNotFound: nothing would ever undo what the caller does.
// For a VM whose record cannot be used it returns ErrRecord.
func (v *VM) Lock(ctx context.Context) (unlock func(), err error) {
	if v.refused != nil {
		return nil, v.refused
	}
	v.waiting.Add(1)
	defer v.waiting.Add(-1)
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another call on container %q: %w", v.Record().ID, ctx.Err())
	}
	unlock = func() { <-v.turn }
	if v.gone.Load() {
		unlock()
		return nil, fmt.Errorf("container %q: %w: it was removed meanwhile", v.Record().ID, vmerrors.ErrNotFound)
	}
	return unlock, nil
}

// SetDispute sets how the node's witnesses disagree about a VM that runs; empty if they agree.
func (v *VM) SetDispute(message string) { v.dispute.Store(&message) }

// Dispute returns what SetDispute set last.
func (v *VM) Dispute() string {
	if message := v.dispute.Load(); message != nil {
		return *message
	}
	return ""
}

// SetDisowned sets what to know of a guest whose pod the API server does not have; empty for others.
func (v *VM) SetDisowned(message string) { v.disowned.Store(&message) }

// Disowned returns what SetDisowned set last.
func (v *VM) Disowned() string {
	if message := v.disowned.Load(); message != nil {
		return *message
	}
	return ""
}

// Awaited reports whether another call waits for the VM's turn.
func (v *VM) Awaited() bool { return v.waiting.Load() > 0 }

// Publish makes r, which is on disk or cannot get there, the record that readers
// see. The caller has the VM's turn.
func (v *VM) Publish(r record.Container) {
	v.rec.Store(&r)
	if r.State == record.Exited {
		v.end()
	}
}

// PerVM holds one value of a part for each VM. New makes the value at its first
// use; the value goes with its VM.
type PerVM[T any] struct{ New func(*VM) T }

// Of returns the VM's value.
func (p *PerVM[T]) Of(v *VM) T {
	v.values.Lock()
	defer v.values.Unlock()
	if value, ok := v.values.of[p]; ok {
		return value.(T)
	}
	if v.values.of == nil {
		v.values.of = map[any]any{}
	}
	value := p.New(v)
	v.values.of[p] = value
	return value
}
