package domain

import "sync"

// starts are the calls of [Driver.Start] that libvirtd has not answered yet,
// by domain. Their callers may have given up long since.
type starts struct {
	mu      sync.Mutex
	pending map[string]*pendingStart
}

type pendingStart struct {
	calls int
	done  chan struct{}
}

// begin notes a call, and returns the function that notes its end.
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

// of is closed when no call for the domain is pending any more. It is nil
// where none is.
func (s *starts) of(uuid string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pending[uuid]; p != nil {
		return p.done
	}
	return nil
}
