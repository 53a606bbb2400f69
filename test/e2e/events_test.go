package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

// events collects what GetContainerEvents sends of one pod's containers.
type events struct {
	mu  sync.Mutex
	all []*runtimeapi.ContainerEventResponse
}

func (e *events) of(id string) (found []*runtimeapi.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.all {
		if r.ContainerId == id {
			found = append(found, r)
		}
	}
	return found
}

func watch(t *testing.T) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := suite.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	assert.NilError(t, err)
	e := &events{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.all = append(e.all, r)
			e.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
	return e
}

func TestEvents(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	e := watch(t)
	// Only an event shows that the watch has begun.
	attempt := uint32(0)
	wait.Until(t, "an event comes", func() bool {
		config := p.newContainer("early", suite.busybox)
		config.Metadata.Attempt, attempt = attempt, attempt+1
		early := p.create(config)
		early.removeIt()
		return len(e.of(early.id)) > 0
	})

	vm := p.vm(suite.halt).start()
	sidecar := p.sidecar("sleep", "1000000").start()
	// An event comes with the statuses of when it is sent.
	wait.Until(t, "both starts are told", func() bool { return len(e.of(vm.id)) >= 2 && len(e.of(sidecar.id)) >= 2 })
	for _, c := range []*container{sidecar, vm} {
		c.stop(0)
		c.removeIt()
	}
	want := []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	for _, c := range []*container{vm, sidecar} {
		wait.Until(t, "all events come", func() bool { return len(e.of(c.id)) >= len(want) })
		var kinds []runtimeapi.ContainerEventType
		for _, r := range e.of(c.id) {
			kinds = append(kinds, r.ContainerEventType)
			if s := r.PodSandboxStatus; s.GetId() != p.id || s.GetRuntimeHandler() != "vm" || s.GetMetadata().GetUid() != p.config.Metadata.Uid {
				t.Errorf("%s of %s has the pod status %v", r.ContainerEventType, c.config.Metadata.Name, s)
			}
			if r.CreatedAt == 0 {
				t.Errorf("%s of %s has no time", r.ContainerEventType, c.config.Metadata.Name)
			}
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("events of %s: %v", c.config.Metadata.Name, kinds)
		}
	}
	started := e.of(vm.id)[1]
	if !hasStatus(started, vm.id, runtimeapi.ContainerState_CONTAINER_RUNNING) {
		t.Errorf("the VM's start comes with the statuses %v", started.ContainersStatuses)
	}
	for _, id := range []string{vm.id, sidecar.id} {
		if r := e.of(sidecar.id)[1]; !hasStatus(r, id, runtimeapi.ContainerState_CONTAINER_RUNNING) {
			t.Errorf("the sidecar's start comes with the statuses %v", r.ContainersStatuses)
		}
	}
	if r := e.of(vm.id)[2]; !hasStatus(r, vm.id, runtimeapi.ContainerState_CONTAINER_EXITED) {
		t.Errorf("the VM's end comes with the statuses %v", r.ContainersStatuses)
	}
}

func hasStatus(r *runtimeapi.ContainerEventResponse, id string, state runtimeapi.ContainerState) bool {
	return slices.ContainsFunc(r.ContainersStatuses, func(s *runtimeapi.ContainerStatus) bool {
		return s.Id == id && s.State == state
	})
}

func TestReopenContainerLog(t *testing.T) {
	t.Parallel()
	c := vmPod(t, ticking).vm(suite.kernel).start()
	c.saying("tick 1$")
	rotated := c.logFile() + ".1"
	assert.NilError(t, os.Rename(c.logFile(), rotated))
	_, err := suite.cri.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: c.id})
	assert.NilError(t, err)
	old := readLog(t, rotated)
	last := ticksIn(t, old)
	c.saying(fmt.Sprintf("tick %d$", len(last)+2))
	if after := readLog(t, rotated); !slices.Equal(after, old) {
		t.Errorf("after its reopening the old log went on:\n%s", strings.Join(after, "\n"))
	}
	for i, tick := range append(last, ticks(t, c)...) {
		if tick != i+1 {
			t.Fatalf("the old log has the ticks %v, the new one %v", last, ticks(t, c))
		}
	}
}
