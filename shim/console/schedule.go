package console

import (
	"sync"
	"time"
)

// schedule orders the consoles' turns. A console that needs another turn at once
// goes to the end of the queue, so that a guest that prints endlessly gets one turn per round.
type schedule struct {
	mu    sync.Mutex
	queue []*slot
	ready chan struct{} // holds a token when the queue is not empty
}

// slot is one console's place in the schedule.
type slot struct {
	console *follower
	queued  bool
	timer   *time.Timer // for the turn at due, nil before the first
	due     time.Time   // zero: no turn is due
	left    bool        // takes no more turns
}

func newSchedule() *schedule { return &schedule{ready: make(chan struct{}, 1)} }

// in schedules a turn after d, unless an earlier one is scheduled.
func (s *schedule) in(p *slot, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d <= 0 {
		s.push(p)
		return
	}
	due := time.Now().Add(d)
	if p.left || p.queued || (!p.due.IsZero() && !due.Before(p.due)) {
		return
	}
	p.due = due
	if p.timer == nil {
		p.timer = time.AfterFunc(d, func() { s.in(p, 0) })
		return
	}
	p.timer.Reset(d)
}

// push appends p to the queue. The caller holds s.mu.
func (s *schedule) push(p *slot) {
	if p.left || p.queued {
		return
	}
	p.queued, p.due = true, time.Time{}
	s.queue = append(s.queue, p)
	s.signal()
}

func (s *schedule) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// pop returns the next console, or nil if the caller must wait for ready.
func (s *schedule) pop() *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	p.queued = false
	if len(s.queue) > 0 {
		s.signal()
	}
	return p.console
}

// leave removes p for good.
func (s *schedule) leave(p *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.left = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
