// Package event hands CRI's container events to all who subscribed to them.
package event

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// backlog is the number of events that a subscriber may be behind before it
// loses some. The kubelet reads the lists from time to time, so it recovers.
const backlog = 1000

// Broker hands each event to every subscriber. Its zero value is ready to use.
type Broker struct {
	mu          sync.Mutex
	subscribers map[chan *runtimeapi.ContainerEventResponse]struct{}
}

// Subscribe returns the events of VM containers from now on, until ctx ends.
// Each event names the container, the kind and the time; the reader fills in
// the pod's part.
func (b *Broker) Subscribe(ctx context.Context) <-chan *runtimeapi.ContainerEventResponse {
	c := make(chan *runtimeapi.ContainerEventResponse, backlog)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[chan *runtimeapi.ContainerEventResponse]struct{}{}
	}
	b.subscribers[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subscribers, c)
		close(c)
	})
	return c
}

// Publish sends an event about a container. It does not wait for subscribers.
func (b *Broker) Publish(r record.Container, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        r.ID,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: r.SandboxID},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.subscribers {
		select {
		case c <- e:
		default:
		}
	}
}
