package replicaset

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

const reasonBackOff = "BackOff"

// failures remembers of replica sets how often in a row their instances ended
// early. It does so in memory: a controller that starts begins with the shortest
// wait.
type failures struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*streak
}

// streak are generations of instances in a row of which one ended early. It is an
// error for users: why there are fewer replicas than wanted.
type streak struct {
	set         types.UID
	count       int
	last, until time.Time // when the last one was found, and when the next may start
	newest      time.Time // of the instances that were there then, by the API server's clock
	of          *instance
}

func (s *streak) Error() string {
	return fmt.Sprintf("instance %s ended soon after its start, phase %s; failure %d in a row, replaced after %s, at %s",
		s.of.Name, s.of.Status.Phase, s.count, s.until.Sub(s.last), s.until.UTC().Format(time.RFC3339))
}

// wait is how long the next start has to wait; 0 for not at all.
func (s *streak) wait(now time.Time) time.Duration {
	if s == nil {
		return 0
	}
	return max(s.until.Sub(now), 0)
}

// note counts instances that ended early, those that were there at the last count
// but once. It returns the set's streak, and the same as news if it has grown. An
// instance that was made since and ran long enough ends a streak.
func (f *failures) note(set *replicaSet, all []*instance, now time.Time) (current, news *streak) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	have := f.all[key]
	if have != nil && have.set != set.UID {
		have = nil
	}
	next := streak{set: set.UID, count: 1, last: now}
	if have != nil {
		next.count, next.newest = have.count+1, have.newest
	}
	for _, vmi := range all {
		if vmi.CreationTimestamp.After(next.newest) {
			next.newest = vmi.CreationTimestamp.Time
		}
		switch fresh := have == nil || vmi.CreationTimestamp.After(have.newest); {
		case !fresh:
		case vmi.Status.Phase == kubevirt.Running && backoff.RunTime(vmi, now) >= backoff.Steady:
			have, next.count = nil, 1
		case backoff.EndedEarly(vmi, now):
			next.of = vmi
		}
	}
	if next.of != nil {
		next.until = now.Add(backoff.Wait(next.count))
		have, news = &next, &next
	}
	if f.all == nil {
		f.all = map[types.NamespacedName]*streak{}
	}
	f.all[key] = have
	return have, news
}

func (f *failures) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, key)
}
