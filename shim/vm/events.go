package vm

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// backlog is how many events a subscriber may be behind before it loses some:
// the kubelet reads the lists anew from time to time.
const backlog = 1000

// broker hands events on to all who subscribed.
type broker struct {
	mu   sync.Mutex
	subs map[chan *runtimeapi.ContainerEventResponse]struct{}
}

// Subscribe returns the events of VM containers from now on, until ctx ends.
// They name container, kind and time; the pod's part is the reader's to fill in.
func (m *Manager) Subscribe(ctx context.Context) <-chan *runtimeapi.ContainerEventResponse {
	c := make(chan *runtimeapi.ContainerEventResponse, backlog)
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	if m.events.subs == nil {
		m.events.subs = map[chan *runtimeapi.ContainerEventResponse]struct{}{}
	}
	m.events.subs[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.events.mu.Lock()
		defer m.events.mu.Unlock()
		delete(m.events.subs, c)
		close(c)
	})
	return c
}

func (m *Manager) publish(r record.Container, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        r.ID,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: r.SandboxID},
	}
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	for c := range m.events.subs {
		select {
		case c <- e:
		default:
		}
	}
}

// Statuses returns the statuses of a sandbox's VM containers.
func (m *Manager) Statuses(sandboxID string) []*runtimeapi.ContainerStatus {
	var all []*runtimeapi.ContainerStatus
	for _, c := range m.all(sandboxID) {
		if r := c.record(); r.State != record.Creating {
			all = append(all, status(r))
		}
	}
	return all
}
