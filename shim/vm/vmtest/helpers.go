package vmtest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
)

// helpers are the helper processes of VMs, such as swtpm, that a fake has started. T is what is known of a VM's.
type helpers[T any] struct {
	script *Script
	kind   string // the fake's name in the script

	mu      sync.Mutex
	changed chan struct{}
	running map[string]T
	lastPID int
}

func newHelpers[T any](s *Script, kind string, lastPID int) helpers[T] {
	return helpers[T]{script: s, kind: kind, changed: make(chan struct{}), running: map[string]T{}, lastPID: lastPID}
}

func (h *helpers[T]) nextPID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastPID++
	return h.lastPID
}

func (h *helpers[T]) started(id string, known T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[id] = known
}

// of returns what is known of a VM's helpers, and a channel that is closed when one ends.
func (h *helpers[T]) of(id string) (T, bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, runs := h.running[id]
	return known, runs, h.changed
}

// Watch waits until a VM's helpers have ended.
func (h *helpers[T]) Watch(ctx context.Context, id string) error {
	if err := h.script.enter(ctx, h.kind+".Watch"); err != nil {
		return err
	}
	for {
		_, runs, changed := h.of(id)
		if !runs {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Remove ends a VM's helpers.
func (h *helpers[T]) Remove(ctx context.Context, id string) error {
	if err := h.script.enter(ctx, h.kind+".Remove"); err != nil {
		return err
	}
	h.Kill(id)
	return nil
}

// Sweep ends the helpers of unknown VMs.
func (h *helpers[T]) Sweep(ctx context.Context, known func(id string) bool) error {
	if err := h.script.enter(ctx, h.kind+".Sweep"); err != nil {
		return err
	}
	for _, id := range h.Left() {
		if !known(id) {
			h.Kill(id)
		}
	}
	return nil
}

// Kill ends a VM's helpers, as if they had failed.
func (h *helpers[T]) Kill(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, id)
	close(h.changed)
	h.changed = make(chan struct{})
}

// Left returns the containers whose helpers run.
func (h *helpers[T]) Left() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.running))
}

// watched are helpers, real or not.
type watched interface {
	Watch(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	Sweep(ctx context.Context, known func(id string) bool) error
}

// testWatched is the part of the suites of a VM's helpers that have started. The function starts them again.
func testWatched(t *testing.T, all watched, id string, start func()) {
	t.Helper()
	ctx := t.Context()
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := all.Watch(over, id); err == nil {
		t.Error("a helper that runs has ended")
	}
	ended := make(chan error, 1)
	go func() { ended <- all.Watch(ctx, id) }()
	for range 2 {
		if err := all.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("watch helpers that end: %v", err)
	}
	start()
	if err := all.Sweep(ctx, func(known string) bool { return known == id }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(over, id); err == nil {
		t.Error("a known VM's helpers were swept")
	}
	if err := all.Sweep(ctx, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(ctx, id); err != nil {
		t.Errorf("watch helpers that were swept: %v", err)
	}
}
