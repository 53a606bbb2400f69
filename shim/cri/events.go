package cri

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errEnding ends a stream of events when the shim stops: the client must call
// again, and reaches the next shim.
var errEnding = status.Error(codes.Unavailable, "the shim is ending")

// eventSource has the events of VM containers; package event's Broker.
type eventSource interface {
	Subscribe(ctx context.Context) <-chan *runtimeapi.ContainerEventResponse
}

// vmStatuses returns the statuses of the VM containers of a sandbox.
type vmStatuses interface {
	Statuses(sandboxID string) []*runtimeapi.ContainerStatus
}

// eventCalls are the streams of container events.
type eventCalls struct {
	events    eventSource
	sandboxes sandboxIndex
	reports   vmStatuses
	pods      runtimeapi.RuntimeServiceClient // containerd's
	ending    <-chan struct{}                 // closed when the shim stops
}

func (s *eventCalls) routes() map[string]route {
	return map[string]route{runtimeapi.RuntimeService_GetContainerEvents_FullMethodName: s.get}
}

// get merges containerd's events with those of VM containers. Each
// event of a VM's pod lists all of the pod's containers.
func (s *eventCalls) get(c *call) error {
	f, err := c.receive()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.stream.Context())
	defer cancel()
	ours := s.events.Subscribe(ctx) // before asking containerd, so that none is missed
	backend, err := c.ask(f)
	if err != nil {
		return err
	}
	defer backend.cancel(nil)

	var sending sync.WaitGroup // the call must not end before its last sender
	defer sending.Wait()
	defer cancel()
	var mu sync.Mutex // a stream takes one sender at a time
	send := func(f frame) error {
		mu.Lock()
		defer mu.Unlock()
		return c.reply(f)
	}
	sending.Go(func() {
		for {
			select {
			case e, ok := <-ours:
				if !ok {
					return
				}
				if err := s.sendOurs(ctx, e, send); err != nil {
					backend.cancel(err)
					return
				}
			case <-s.ending:
				backend.cancel(errEnding)
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return c.replies(backend, func(f frame) error {
		f, err := s.withVMs(f)
		if err != nil {
			return err
		}
		return send(f)
	})
}

// withVMs adds the VM containers of the pod, if any, to an event of
// containerd. Other events stay unchanged.
func (s *eventCalls) withVMs(f frame) (frame, error) {
	var e runtimeapi.ContainerEventResponse
	if err := decode(f, &e); err != nil {
		return nil, err
	}
	id := e.GetPodSandboxStatus().GetId()
	handler, ok := s.sandboxes.Handler(id)
	if !ok {
		return f, nil
	}
	e.PodSandboxStatus.RuntimeHandler = handler
	e.ContainersStatuses = append(e.ContainersStatuses, s.reports.Statuses(id)...)
	return encode(&e)
}

func (s *eventCalls) sendOurs(ctx context.Context, e *runtimeapi.ContainerEventResponse, send func(frame) error) error {
	f, err := encode(s.withPod(ctx, e))
	if err != nil {
		return err
	}
	return send(f)
}

// withPod adds the pod to an event of a VM container. If containerd does not return
// the pod, the event keeps what the shim knows.
func (s *eventCalls) withPod(ctx context.Context, e *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
	id := e.GetPodSandboxStatus().GetId()
	full := &runtimeapi.ContainerEventResponse{
		ContainerId:        e.ContainerId,
		ContainerEventType: e.ContainerEventType,
		CreatedAt:          e.CreatedAt,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: id},
		ContainersStatuses: s.reports.Statuses(id),
	}
	reply, err := s.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err == nil && reply.GetStatus() != nil {
		full.PodSandboxStatus = reply.GetStatus()
	}
	if handler, ok := s.sandboxes.Handler(id); ok {
		full.PodSandboxStatus.RuntimeHandler = handler
	}
	sidecars, err := s.pods.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id},
	})
	if err != nil {
		return full
	}
	for _, sidecar := range sidecars.GetContainers() {
		reply, err := s.pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: sidecar.GetId()})
		if err == nil && reply.GetStatus() != nil {
			full.ContainersStatuses = append(full.ContainersStatuses, reply.GetStatus())
		}
	}
	return full
}
