package domain

import "sync"

// starts has the calls of [Lifecycle.Start] that libvirtd has not answered yet, by
// domain. The contexts of their callers may have ended.
type starts struct {
	mu      sync.Mutex
	pending map[string]*pendingStart
}

type pendingStart struct {
	calls int
	done  chan struct{}
}

// begin records a call, and returns the function that records its end.
func (s *starts) begin(uuid string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.pending = map[string]*pendingStart{}
	}
	p := s.pending[uuid]
	if p == nil {
		p = &pendingStart{done: make(chan struct{})}
		s.pending[uuid] = p
	}
	p.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.calls--; p.calls == 0 {
			delete(s.pending, uuid)
			close(p.done)
		}
	}
}

// of returns a channel that is closed when no call for the domain is pending. It
// is nil if none is.
func (s *starts) of(uuid string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pending[uuid]; p != nil {
		return p.done
	}
	return nil
}
