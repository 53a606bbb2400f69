package cri

import (
	"errors"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerEvents merges containerd's events and those of VM containers. The
// events of a VM's pod tell of all its containers, whoever they belong to.
func (c *call) containerEvents() error {
	f, err := c.receive()
	if err != nil {
		return err
	}
	ours := c.Machines.Subscribe(c.stream.Context())
	backend, cancel, err := c.open()
	if err != nil {
		return err
	}
	defer cancel()
	if err := errors.Join(backend.SendMsg(&f), backend.CloseSend()); err != nil {
		return c.replies(backend, c.reply) // it knows why
	}
	var mu sync.Mutex // a stream takes one sender at a time
	send := func(e *runtimeapi.ContainerEventResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return c.send(e)
	}
	go func() {
		for e := range ours {
			if err := send(c.withPod(e)); err != nil {
				cancel()
			}
		}
	}()
	return c.replies(backend, func(f frame) error {
		var e runtimeapi.ContainerEventResponse
		if err := decode(f, &e); err != nil {
			return err
		}
		if handler, ok := c.Machines.Handler(e.GetPodSandboxStatus().GetId()); ok {
			e.PodSandboxStatus.RuntimeHandler = handler
			e.ContainersStatuses = append(e.ContainersStatuses, c.Machines.Statuses(e.PodSandboxStatus.Id)...)
		}
		return send(&e)
	})
}

// withPod fills in what an event of a VM container tells of its pod. A pod that
// containerd doesn't tell of any more, or that it can't be asked for now, leaves
// the event with what is known here.
func (c *call) withPod(e *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
	id := e.GetPodSandboxStatus().GetId()
	full := &runtimeapi.ContainerEventResponse{
		ContainerId:        e.ContainerId,
		ContainerEventType: e.ContainerEventType,
		CreatedAt:          e.CreatedAt,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: id},
		ContainersStatuses: c.Machines.Statuses(id),
	}
	pods := runtimeapi.NewRuntimeServiceClient(c.Backend)
	if reply, err := pods.PodSandboxStatus(c.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}); err == nil {
		full.PodSandboxStatus = reply.GetStatus()
	}
	if handler, ok := c.Machines.Handler(id); ok {
		full.PodSandboxStatus.RuntimeHandler = handler
	}
	sidecars, err := pods.ListContainers(c.ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id},
	})
	if err != nil {
		return full
	}
	for _, s := range sidecars.GetContainers() {
		reply, err := pods.ContainerStatus(c.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: s.GetId()})
		if err == nil {
			full.ContainersStatuses = append(full.ContainersStatuses, reply.GetStatus())
		}
	}
	return full
}
