package vmi

import "sync"

// turns let one worker at a time look who uses a PVC and create a pod that does: two
// workers might both find a PVC unused. One controller at a time works, by leader
// election, and its cache has all pods that the former one created.
type turns struct {
	mu   sync.Mutex
	busy map[string]bool
}

// take starts a turn with PVCs, and returns a function that ends it; nil if another
// worker has a turn with one of them.
func (t *turns) take(pvcs []string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range pvcs {
		if t.busy[name] {
			return nil
		}
	}
	if t.busy == nil {
		t.busy = map[string]bool{}
	}
	for _, name := range pvcs {
		t.busy[name] = true
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, name := range pvcs {
			delete(t.busy, name)
		}
	}
}
