package migration

import (
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// asked remembers when the nodes were last asked about each migration that runs. The controller's own
// writes, and changes of pods that say nothing of the guest, are no reason to ask again.
type asked struct {
	mu   sync.Mutex
	last map[client.ObjectKey]question
}

// question is when nodes were asked, and what was known then.
type question struct {
	at time.Time
	knowledge
}

// knowledge is what is a reason to ask at once if it changes.
type knowledge struct {
	source, target instances.State
	// ready is the target's report of its VM.
	ready             string
	cancelled, failed bool
}

func known(w work) knowledge {
	k := knowledge{
		source: w.sourceState, target: w.targetState,
		cancelled: cancelled(w.m), failed: w.m.Status.MigrationState.FailureReason != "",
	}
	if c := vmReady(w.target); c != nil {
		k.ready = fmt.Sprint(c.Status, c.LastTransitionTime.UTC())
	}
	return k
}

func newAsked() *asked { return &asked{last: map[client.ObjectKey]question{}} }

// note notes that the nodes are asked now.
func (a *asked) note(w work, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[client.ObjectKeyFromObject(w.m)] = question{now, known(w)}
}

// wait returns how long to wait until the nodes are asked again, with a pause between two questions. It
// returns 0, and notes the question, if there is a reason to ask now.
func (a *asked) wait(w work, now time.Time, pause time.Duration) time.Duration {
	a.mu.Lock()
	last, is := a.last[client.ObjectKeyFromObject(w.m)]
	a.mu.Unlock()
	if rest := pause - now.Sub(last.at).Abs(); is && last.knowledge == known(w) && rest > 0 {
		return rest
	}
	a.note(w, now)
	return 0
}

// forget drops what is remembered of a migration that has ended.
func (a *asked) forget(m client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, m)
}
