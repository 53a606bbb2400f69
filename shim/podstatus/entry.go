package podstatus

import (
	"errors"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// Intervals of the writes of one pod. They bound the writes that a guest can cause,
// for example by restarting its agent repeatedly.
const (
	// collect is how long a write waits after the first change, to include later ones.
	collect = time.Second
	// leastSpace and mostSpace bound the interval between two writes: it doubles
	// with each write, and is reset after calm.
	leastSpace = 2 * time.Second
	mostSpace  = time.Minute
	calm       = 5 * time.Minute
	// leastRetry and mostRetry bound the interval between attempts of a write that fails.
	leastRetry = time.Second
	mostRetry  = 5 * time.Minute
	// mostAway bounds that interval while the API server cannot be reached.
	mostAway = 30 * time.Second
)

// entry holds the facts of a pod, and what was written of them.
type entry struct {
	pod   Pod
	facts []Condition // current, with the facts' own transition times
	// written is what the API server has, by type. If it is nil the status must be
	// read first, since an earlier shim may have written it.
	written map[string]Condition
	// event must be recorded after the next write; the zero value is none. evented is the last one, which is not recorded
	// again.
	event, evented event
	// version is the pod's when it was read or written last; empty if that is not known.
	version string
	// due is when to write, zero if nothing changed.
	due time.Time
	// last is when the last write was, space the least interval before the next.
	last     time.Time
	space    time.Duration
	failures int
	gone     bool // the pod is deleted: nothing is written
	// expires is when to drop the entry; zero is never, except by Forget.
	expires time.Time
}

// event is a warning about a pod.
type event struct{ reason, message string }

// note has an event recorded, unless it is the last one.
func (e *entry) note(one event) {
	if one != e.evented {
		e.event, e.evented = one, one
	}
}

// set sets new facts, and schedules their write.
func (e *entry) set(facts []Condition, now time.Time) {
	e.facts = facts
	if e.gone || e.failures > 0 {
		return // nothing to do, or scheduled already
	}
	changed := e.changes()
	switch {
	case e.written != nil && len(changed) == 0:
		// Nothing differs. A scheduled write stays, so that facts that alternate
		// cannot delay it forever.
	case e.last.IsZero() || e.readyChanges(changed):
		e.due = now
	case e.due.IsZero():
		e.due = later(now.Add(collect), e.last.Add(e.space))
	}
}

// seen schedules a read of a pod whose version is not the known one, and reports whether it has.
func (e *entry) seen(version string, now time.Time) bool {
	if version == e.version && !e.gone || e.failures > 0 || e.written == nil && !e.due.IsZero() {
		return false // the pod is known, or is about to be read
	}
	e.gone, e.written = false, nil
	if e.due.IsZero() {
		e.due = later(now, e.last.Add(e.space))
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// changes returns the conditions that differ from those of the API server. A
// condition with an unchanged status keeps its transition time.
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

// readyChanges reports whether the VM started or ended, which happens once each.
func (e *entry) readyChanges(changed []Condition) bool {
	for _, c := range changed {
		if was, known := e.written[c.Type]; c.Type == readyType && (!known || was.Status != c.Status) {
			return true
		}
	}
	return false
}

// wrote records a successful write.
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
	e.set(e.facts, now) // they may have changed meanwhile
}

// failed schedules the next attempt.
func (e *entry) failed(err error, now time.Time) {
	switch {
	case errors.Is(err, kubelet.ErrGone):
		e.gone, e.due = true, time.Time{}
		return
	case errors.Is(err, kubelet.ErrRefused):
		// The same conditions would be refused again. Others may be accepted.
		e.last, e.failures, e.due, e.written = now, 0, time.Time{}, nil
		return
	case errors.Is(err, kubelet.ErrConflict):
		e.written = nil
	}
	pause := retry(e.failures)
	if errors.Is(err, kubelet.ErrAway) {
		pause = min(pause, mostAway)
	}
	e.due = now.Add(pause)
	e.failures++
}

func retry(failures int) time.Duration {
	return min(leastRetry<<min(failures, 16), mostRetry)
}
