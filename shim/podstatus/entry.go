package podstatus

import (
	"errors"
	"time"
)

// Times of the writes of one pod. What a guest can bring about, as its agent
// coming and going, is written once in a while, however often it happens.
const (
	// collect is how long facts are gathered after the first that is new.
	collect = time.Second
	// leastSpace and mostSpace are between two writes: the space doubles with
	// each write, and is the least again after calm.
	leastSpace = 2 * time.Second
	mostSpace  = time.Minute
	calm       = 5 * time.Minute
	// leastRetry and mostRetry are between the tries of a write that fails.
	leastRetry = time.Second
	mostRetry  = 5 * time.Minute
	// mostAway is between the tries while the API server is away.
	mostAway = 30 * time.Second
)

// entry is what is to be told of one pod, and what was.
type entry struct {
	pod   Pod
	facts []Condition // what holds now; its transition times are those of the facts
	// written is what the API server has, by type, as far as known; nil: it has
	// to be asked, since an earlier shim may have written.
	written map[string]Condition
	// due is when to write, zero where there is nothing to.
	due time.Time
	// last is when the last write was, space what has to lie behind the next.
	last     time.Time
	space    time.Duration
	failures int
	gone     bool // the pod is not there any more: nothing is written
	// expires is when to forget the pod by itself; zero: when that is asked for.
	expires time.Time
}

// tell takes over new facts, and plans their write.
func (e *entry) tell(facts []Condition, now time.Time) {
	e.facts = facts
	if e.gone || e.failures > 0 {
		return // nothing to do, or planned already
	}
	changed := e.changes()
	switch {
	case e.written != nil && len(changed) == 0:
		// It is as it was. What is planned stays: facts that change to and fro
		// must not put it off for ever.
	case e.last.IsZero() || e.readyChanges(changed):
		e.due = now
	case e.due.IsZero():
		e.due = later(now.Add(collect), e.last.Add(e.space))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// changes are the conditions that the API server does not have so. One whose
// status stays keeps the time of its last transition.
func (e *entry) changes() []Condition {
	var all []Condition
	for _, c := range e.facts {
		was, known := e.written[c.Type]
		if known && was.same(c) {
			continue
		}
		if known && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		all = append(all, c)
	}
	return all
}

// readyChanges tells whether the VM began to run or ended: that happens once.
func (e *entry) readyChanges(changed []Condition) bool {
	for _, c := range changed {
		if was, known := e.written[c.Type]; c.Type == readyType && (!known || was.Status != c.Status) {
			return true
		}
	}
	return false
}

// wrote notes that the API server has changed.
func (e *entry) wrote(changed []Condition, now time.Time) {
	for _, c := range changed {
		e.written[c.Type] = c
	}
	e.failures, e.due = 0, time.Time{}
	if len(changed) == 0 {
		return
	}
	if now.Sub(e.last) > calm {
		e.space = leastSpace
	} else {
		e.space = min(2*e.space, mostSpace)
	}
	e.last = now
	e.tell(e.facts, now) // there may be new ones
}

// failed plans the next try.
func (e *entry) failed(err error, now time.Time) {
	switch {
	case errors.Is(err, errGone):
		e.gone, e.due = true, time.Time{}
		return
	case errors.Is(err, errRefused):
		// The same would be refused again. Other facts may be taken.
		e.last, e.failures, e.due, e.written = now, 0, time.Time{}, nil
		return
	case errors.Is(err, errConflict):
		e.written = nil
	}
	pause := retry(e.failures)
	if errors.Is(err, errAway) {
		pause = min(pause, mostAway)
	}
	e.due = now.Add(pause)
	e.failures++
}

func retry(failures int) time.Duration {
	return min(leastRetry<<min(failures, 16), mostRetry)
}
