// Package turns limits how much work of one kind runs at the same time, fairly between namespaces.
package turns

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Turns limits how many pieces of work of one kind, such as conversions of a node's disks, run at the same time.
// Namespaces take turns: the next piece is one of the namespace that has the fewest running, and of several such of the
// one that has waited longest since its last turn. One namespace leaves turns to others. So a namespace with much long
// work does not delay another's one.
type Turns struct {
	what  string
	time  time.Duration // after which a turn is given to another, too
	most  int           // how many turns one namespace gets at the same time
	mu    sync.Mutex
	free  int
	count uint64 // turns given so far
	of    map[string]*tenant
}

// tenant is a namespace with work that runs or waits.
type tenant struct {
	running int
	last    uint64 // the number of its last turn
	waiting []chan struct{}
}

// New returns Turns for n pieces of work at the same time, of which one namespace gets at most most. What names what
// the others do in errors.
func New(what string, n, most int) *Turns {
	return &Turns{what: what, most: most, free: n, of: map[string]*tenant{}}
}

// For makes turns end after a time. The work goes on, and still counts as one of its namespace: slow work, such as that of
// a VM whose processor time is limited, delays its own namespace alone.
func (t *Turns) For(time time.Duration) *Turns {
	t.time = time
	return t
}

// Take waits for a turn of a namespace. It calls waiting first if there is no free one. The caller
// calls release once, after its work.
func (t *Turns) Take(ctx context.Context, namespace string, waiting func()) (release func(), err error) {
	ready := make(chan struct{})
	t.mu.Lock()
	n := t.of[namespace]
	if n == nil {
		n = &tenant{}
		t.of[namespace] = n
	}
	n.waiting = append(n.waiting, ready)
	t.give()
	t.mu.Unlock()
	select {
	case <-ready:
		return t.begin(namespace), nil
	default:
	}
	waiting()
	select {
	case <-ready:
		return t.begin(namespace), nil
	case <-ctx.Done():
		t.leave(namespace, ready)
		return nil, fmt.Errorf("wait for %s: %w", t.what, context.Cause(ctx))
	}
}

// give gives free turns to work that waits. The caller holds t.mu.
func (t *Turns) give() {
	for t.free > 0 {
		var next *tenant
		for _, name := range slices.SortedFunc(maps.Keys(t.of), strings.Compare) {
			n := t.of[name]
			if len(n.waiting) == 0 || n.running >= t.most {
				continue
			}
			if next == nil || n.running < next.running || n.running == next.running && n.last < next.last {
				next = n
			}
		}
		if next == nil {
			return
		}
		t.free--
		t.count++
		next.running++
		next.last = t.count
		close(next.waiting[0])
		next.waiting = next.waiting[1:]
	}
}

// begin begins a turn that was given.
func (t *Turns) begin(namespace string) (release func()) {
	if t.time == 0 {
		return func() { t.release(namespace, 1) }
	}
	// Whichever ends first gives the turn on.
	var over sync.Once
	end := func() (turns int) {
		over.Do(func() { turns = 1 })
		return turns
	}
	timer := time.AfterFunc(t.time, func() {
		n := end()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.free += n
		t.give()
	})
	return func() {
		timer.Stop()
		t.release(namespace, end())
	}
}

// release ends the work of a namespace, which has a turn, or none any more.
func (t *Turns) release(namespace string, turns int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free += turns
	t.of[namespace].running--
	t.give()
	t.forget(namespace)
}

// leave ends a wait. A turn that was given meanwhile goes to another.
func (t *Turns) leave(namespace string, ready chan struct{}) {
	t.mu.Lock()
	n := t.of[namespace]
	i := slices.Index(n.waiting, ready)
	if i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
		t.forget(namespace)
	}
	t.mu.Unlock()
	if i < 0 {
		t.release(namespace, 1)
	}
}

// forget forgets a namespace without work. The caller holds t.mu.
func (t *Turns) forget(namespace string) {
	if n := t.of[namespace]; n.running == 0 && len(n.waiting) == 0 {
		delete(t.of, namespace)
	}
}
