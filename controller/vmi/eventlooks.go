package vmi

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookShare is the inverse of the part of the time in which pods' events are listed at most. The API server
	// reads all events of a namespace for each list, and would start pods more slowly the more it lists.
	lookShare = 5
	// maxLooks bounds the pods whose last failure is known.
	maxLooks = 1000
)

// eventLooks lists the events of pods, one pod at a time and for a part of the time alone. Between two lists a pod's
// last failure is the one that the former list found.
type eventLooks struct {
	live client.Reader
	now  func() time.Time

	mu    sync.Mutex
	busy  bool
	next  time.Time // when a list may begin
	known map[types.UID]*trouble
}

func newEventLooks(live client.Reader) *eventLooks {
	return &eventLooks{live: live, now: time.Now, known: map[types.UID]*trouble{}}
}

// lastFailure returns the last failure of a pod's sandbox or volumes that is known; nil for none.
func (e *eventLooks) lastFailure(ctx context.Context, p *corev1.Pod) (*trouble, error) {
	known, begin := e.begin(p.UID)
	if !begin {
		return known, nil
	}
	from := e.now()
	t, err := lastFailure(ctx, e.live, p)
	e.end(p.UID, t, err, e.now().Sub(from))
	return t, err
}

// begin returns what is known of a pod, and whether its events may be listed now. If so, end must follow.
func (e *eventLooks) begin(pod types.UID) (*trouble, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy || e.now().Before(e.next) {
		return e.known[pod], false
	}
	e.busy = true
	return nil, true
}

// end notes what a list that took some time has found.
func (e *eventLooks) end(pod types.UID, t *trouble, err error, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy, e.next = false, e.now().Add((lookShare-1)*took)
	if err != nil {
		return
	}
	delete(e.known, pod)
	if t == nil {
		return
	}
	if len(e.known) >= maxLooks {
		clear(e.known)
	}
	e.known[pod] = t
}
