package event

import (
	"context"
	"fmt"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// TestEvents: no subscriber holds up the others, and none is written to when it has gone.
func TestEvents(t *testing.T) {
	b := &Broker{}
	ctx, cancel := context.WithCancel(t.Context())
	gone, stays := b.Subscribe(ctx), b.Subscribe(t.Context())
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			for range 2 * backlog / 10 {
				b.Publish(record.Container{ID: fmt.Sprint(n), SandboxID: "p"}, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
			}
		})
	}
	cancel()
	all.Wait()
	for range gone {
		continue // until it is closed
	}
	if len(stays) != backlog {
		t.Errorf("%d events wait, want %d", len(stays), backlog)
	}
	if e := <-stays; e.GetPodSandboxStatus().GetId() != "p" || e.GetCreatedAt() == 0 {
		t.Errorf("event %v", e)
	}
}
