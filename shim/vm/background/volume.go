package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrVolume means that a volume has not answered in time.
var ErrVolume = errors.New("the volume does not answer: see whether its storage can be reached from this node")

// Volume runs the accesses of one part to a user's volumes, one after another, in a separate
// goroutine. An access may never return, since no context ends a system call that waits for a server which is
// gone. So no caller waits for longer than its context, and no caller holds a VM's turn meanwhile. A part
// that asks Busy before it begins anything leaves at most one goroutine behind.
//
// The zero value is ready to use.
type Volume struct {
	mu      sync.Mutex
	queue   []*access
	running bool // the goroutine
	begun   bool // an access, which has not returned
}

// access is one call of a queue.
type access struct {
	do   func() error
	done chan error
}

// NewVolume returns an idle Volume.
func NewVolume() *Volume { return &Volume{} }

// Do calls do, and returns its error. If ctx ends first, Do returns ErrVolume together with the reason:
// do goes on if it has begun, and is never called otherwise. What do writes may be read only after Do
// has returned another error than ErrVolume, or by a later access.
func (v *Volume) Do(ctx context.Context, do func() error) error {
	one := &access{do: do, done: make(chan error, 1)}
	v.add(one)
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
	}
	v.mu.Lock()
	v.queue = slices.DeleteFunc(v.queue, func(a *access) bool { return a == one })
	v.mu.Unlock()
	select {
	case err := <-one.done: // at the same time
		return err
	default:
		return fmt.Errorf("%w: %w", ErrVolume, context.Cause(ctx))
	}
}

// Later calls do after the accesses that have been requested before, and does not wait for it.
func (v *Volume) Later(do func()) {
	v.add(&access{do: func() error { do(); return nil }, done: make(chan error, 1)})
}

// Busy reports whether an access has not returned yet, or waits.
func (v *Volume) Busy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.begun || len(v.queue) > 0
}

func (v *Volume) add(one *access) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = append(v.queue, one)
	if !v.running {
		v.running = true
		go v.run()
	}
}

// run carries out accesses until there are none.
func (v *Volume) run() {
	for {
		v.mu.Lock()
		if len(v.queue) == 0 {
			v.running = false
			v.mu.Unlock()
			return
		}
		one := v.queue[0]
		v.queue, v.begun = v.queue[1:], true
		v.mu.Unlock()
		err := one.do()
		v.mu.Lock()
		v.begun = false
		v.mu.Unlock()
		one.done <- err
	}
}
