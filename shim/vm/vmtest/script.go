package vmtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull is what a call on a full disk fails with.
var ErrFull = errors.New("no space left on device")

// Script decides which calls on the fakes fail, hang or wait, and remembers all
// calls. A call is named PART.METHOD, such as "Network.Plan". A test's fakes share
// one Script, so that it knows the order of calls on different parts. The zero
// value lets all calls pass.
type Script struct {
	mu    sync.Mutex
	rules map[string]rule
	calls []string
}

// rule is what happens to a call. The zero value lets it pass.
type rule struct {
	err  error
	once bool // passes from the second call on
	hang bool
	hold <-chan struct{}
}

// Fail makes a call fail from now on; with nil, it works again.
func (s *Script) Fail(call string, err error) { s.set(call, rule{err: err}) }

// FailOnce makes the next call fail, and no other.
func (s *Script) FailOnce(call string, err error) { s.set(call, rule{err: err, once: true}) }

// Hang makes a call last until its context ends.
func (s *Script) Hang(call string) { s.set(call, rule{hang: true}) }

// Hold makes a call wait until release is called, or its context ends.
func (s *Script) Hold(call string) (release func()) {
	hold := make(chan struct{})
	s.set(call, rule{hold: hold})
	return sync.OnceFunc(func() {
		s.set(call, rule{})
		close(hold)
	})
}

func (s *Script) set(call string, r rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules == nil {
		s.rules = map[string]rule{}
	}
	s.rules[call] = r
}

// Calls returns the calls so far, in the order in which they began.
func (s *Script) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how often a call was made.
func (s *Script) Count(call string) int {
	n := 0
	for _, c := range s.Calls() {
		if c == call {
			n++
		}
	}
	return n
}

// Reset forgets the calls so far.
func (s *Script) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// enter notes a call, and returns the error that it must fail with.
func (s *Script) enter(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	r := s.rules[call]
	if r.once {
		delete(s.rules, call)
	}
	s.mu.Unlock()
	if r.hang {
		<-ctx.Done()
		return fmt.Errorf("%s: %w", call, context.Cause(ctx))
	}
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", call, context.Cause(ctx))
		}
	}
	return r.err
}

// note is enter for calls without a context, which can't hang.
func (s *Script) note(call string) error { return s.enter(context.Background(), call) }
