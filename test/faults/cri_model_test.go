//go:build faults

package faults

import (
	"slices"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxState is a pod's.
type sandboxState string

const (
	absent  sandboxState = "absent"
	ready   sandboxState = "ready"
	stopped sandboxState = "stopped"
)

// The states of a VM container; there is none in the state unknown.
const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// vmContainer is a VM container that a client made in its pod.
type vmContainer struct {
	id      string
	attempt uint32
	state   runtimeapi.ContainerState
}

// model is what must be true of one client's pod after the calls that were answered. No other client
// changes the pod, so that one state alone is right.
type model struct {
	sandbox    sandboxState
	containers []*vmContainer // by their creation; only the last one is other than exited
	attempt    uint32         // of the last container that was made
}

// last is the newest container, nil if there is none.
func (m *model) last() *vmContainer {
	if len(m.containers) == 0 {
		return nil
	}
	return m.containers[len(m.containers)-1]
}

// now is the newest container's state.
func (m *model) now() runtimeapi.ContainerState {
	if c := m.last(); c != nil {
		return c.state
	}
	return unknown
}

// run is the answer to a RunPodSandbox.
func (m *model) run(target) codes.Code {
	if m.sandbox == absent {
		return codes.OK
	}
	return codes.FailedPrecondition // the name is reserved
}

// runByNone is the answer to a RunPodSandbox with a handler that containerd does not have.
func (m *model) runByNone(t target) codes.Code {
	if code := m.run(t); code != codes.OK {
		return code
	}
	return codes.Unknown
}

// createNext is the answer to a CreateContainer of the next attempt, createAgain to one of the last.
func (m *model) createNext(target) codes.Code {
	if m.now() == running {
		return codes.FailedPrecondition // a pod holds one VM at a time
	}
	return codes.OK
}

func (m *model) createAgain(t target) codes.Code {
	if c := m.last(); c != nil && c.attempt == m.attempt {
		return codes.FailedPrecondition // the name is reserved
	}
	return m.createNext(t)
}

// create enters a new container. It supersedes one that was not started.
func (m *model) create(id string, attempt uint32) {
	if m.now() == created {
		m.remove(m.last())
	}
	m.containers, m.attempt = append(m.containers, &vmContainer{id, attempt, created}), attempt
}

func (m *model) remove(c *vmContainer) {
	m.containers = slices.DeleteFunc(m.containers, func(o *vmContainer) bool { return o == c })
}

func (m *model) stop(c *vmContainer) {
	if c != nil && c.state == running {
		c.state = exited
	}
}

func (m *model) stopPod() {
	m.stop(m.last())
	if m.sandbox == ready {
		m.sandbox = stopped
	}
}
