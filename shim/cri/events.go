package cri

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errEnding ends a stream of events: its client is to ask again, and will find
// the shim that follows this one.
var errEnding = status.Error(codes.Unavailable, "the shim is ending")

// containerEvents merges containerd's events and those of VM containers. The
// events of a VM's pod tell of all its containers, whoever they belong to.
func (c *call) containerEvents() error {
	f, err := c.receive()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.stream.Context())
	defer cancel()
	ours := c.Events.Subscribe(ctx) // before containerd's, so that none is missed
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
				if err := c.sendOurs(ctx, e, send); err != nil {
					backend.cancel(err)
					return
				}
			case <-c.ending:
				backend.cancel(errEnding)
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return c.replies(backend, func(f frame) error {
		f, err := c.withMachines(f)
		if err != nil {
			return err
		}
		return send(f)
	})
}

// withMachines adds the VM containers to an event of containerd's, where its pod
// has any. All other events stay as they came.
func (c *call) withMachines(f frame) (frame, error) {
	var e runtimeapi.ContainerEventResponse
	if err := decode(f, &e); err != nil {
		return nil, err
	}
	id := e.GetPodSandboxStatus().GetId()
	handler, ok := c.Sandboxes.Handler(id)
	if !ok {
		return f, nil
	}
	e.PodSandboxStatus.RuntimeHandler = handler
	e.ContainersStatuses = append(e.ContainersStatuses, c.Reports.Statuses(id)...)
	return encode(&e)
}

func (c *call) sendOurs(ctx context.Context, e *runtimeapi.ContainerEventResponse, send func(frame) error) error {
	f, err := encode(c.withPod(ctx, e))
	if err != nil {
		return err
	}
	return send(f)
}

// withPod fills in what an event of a VM container tells of its pod. A pod that
// containerd doesn't tell of any more, or that it can't be asked for now, leaves
// the event with what is known here.
func (c *call) withPod(ctx context.Context, e *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
	id := e.GetPodSandboxStatus().GetId()
	full := &runtimeapi.ContainerEventResponse{
		ContainerId:        e.ContainerId,
		ContainerEventType: e.ContainerEventType,
		CreatedAt:          e.CreatedAt,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: id},
		ContainersStatuses: c.Reports.Statuses(id),
	}
	pods := runtimeapi.NewRuntimeServiceClient(c.Backend)
	reply, err := pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err == nil && reply.GetStatus() != nil {
		full.PodSandboxStatus = reply.GetStatus()
	}
	if handler, ok := c.Sandboxes.Handler(id); ok {
		full.PodSandboxStatus.RuntimeHandler = handler
	}
	sidecars, err := pods.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id},
	})
	if err != nil {
		return full
	}
	for _, s := range sidecars.GetContainers() {
		reply, err := pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: s.GetId()})
		if err == nil && reply.GetStatus() != nil {
			full.ContainersStatuses = append(full.ContainersStatuses, reply.GetStatus())
		}
	}
	return full
}
