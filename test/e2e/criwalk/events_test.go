package criwalk

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// events are what GetContainerEvents sends, by container.
type events struct {
	mu  sync.Mutex
	all map[string][]*runtimeapi.ContainerEventResponse
}

func watch(t *testing.T) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := suite.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	assert.NilError(t, err)
	e := &events{all: map[string][]*runtimeapi.ContainerEventResponse{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.all[r.ContainerId] = append(e.all[r.ContainerId], r)
			e.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
	return e
}

// of waits until a container has a number of events.
func (e *events) of(t *testing.T, id string, number int) []*runtimeapi.ContainerEventResponse {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		e.mu.Lock()
		found := slices.Clone(e.all[id])
		e.mu.Unlock()
		if len(found) >= number {
			return found
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("%d events came of %s, not %d", len(found), id, number)
		}
	}
}

// TestEvents has a VM and an ordinary container, each alone in a pod, go through their lives: the
// events are the same in the same order.
func TestEvents(t *testing.T) {
	t.Parallel()
	e := watch(t)
	w := newWalk(t, nil,
		newSubject(newPod(t, "vm-events", "vm").run(), "compute", suite.machine),
		newSubject(newPod(t, "ordinary-events", "").run(), "compute", suite.process))
	e.begun(t, w.process)
	for i, step := range []func(*subject) error{(*subject).create, (*subject).start, (*subject).stop, (*subject).removeIt} {
		w.both(step)
		// One at a time: an event comes with the statuses of when it is sent.
		told := func(s *subject) answer {
			r := e.of(t, s.id, i+1)[i]
			if i > 0 && r.CreatedAt < e.of(t, s.id, i)[i-1].CreatedAt {
				t.Errorf("event %s of %s is older than the one before", r.ContainerEventType, s.name)
			}
			return answer{"OK", shape(r, s.mask)}
		}
		m, p := told(w.machine), told(w.process)
		w.said.note(strings.TrimPrefix(e.of(t, w.process.id, i+1)[i].ContainerEventType.String(), "CONTAINER_"), m, p)
	}
	for _, s := range []*subject{w.machine, w.process} {
		if all := e.of(t, s.id, 4); len(all) != 4 {
			t.Errorf("%d events of %s: %v", len(all), s.name, all)
		}
	}
	golden.Assert(t, w.said.String(), "events.golden")
}

// begun waits until the watch has begun, which only an event shows.
func (e *events) begun(t *testing.T, like *subject) {
	t.Helper()
	early := *like
	for attempt := uint32(100); ; attempt++ {
		early.config = newSubject(like.pod, "early", suite.process).config
		early.config.Metadata.Attempt = attempt
		assert.NilError(t, early.create())
		assert.NilError(t, early.removeIt())
		e.mu.Lock()
		n := len(e.all[early.id])
		e.mu.Unlock()
		if n > 0 {
			return
		}
	}
}
