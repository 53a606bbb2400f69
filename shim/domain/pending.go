package domain

import "sync"

// pending has the calls of [Lifecycle.Define], [Lifecycle.Start] and [Lifecycle.Restore]
// that libvirtd has not answered yet, by domain. The contexts of their callers may have
// ended.
type pending struct {
	mu       sync.Mutex
	byDomain map[string]*pendingCalls
}

type pendingCalls struct {
	calls int
	done  chan struct{}
}

// begin records a call, and returns the function that records its end.
func (s *pending) begin(uuid string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byDomain == nil {
		s.byDomain = map[string]*pendingCalls{}
	}
	p := s.byDomain[uuid]
	if p == nil {
		p = &pendingCalls{done: make(chan struct{})}
		s.byDomain[uuid] = p
	}
	p.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.calls--; p.calls == 0 {
			delete(s.byDomain, uuid)
			close(p.done)
		}
	}
}

// of returns a channel that is closed when no call for the domain is pending. It
// is nil if none is.
func (s *pending) of(uuid string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byDomain[uuid]; p != nil {
		return p.done
	}
	return nil
}
