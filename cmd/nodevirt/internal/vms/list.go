package vms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

const (
	// atOnce bounds the concurrent requests for containers' statuses.
	atOnce = 8
	// askTime bounds each of them, so that one VM does not delay the others for long.
	askTime = 5 * time.Second
)

// List returns the node's VMs, sorted by namespace, name and age. It omits VMs that
// are removed meanwhile. VMs whose status fails have an Err.
func List(ctx context.Context, n *cli.Node) ([]VM, error) {
	pods, err := n.Pods.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", cli.Plain(err))
	}
	byID := map[string]*runtimeapi.PodSandbox{}
	for _, p := range pods.GetItems() {
		byID[p.GetId()] = p
	}
	containers, err := n.Pods.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", cli.Plain(err))
	}
	found := make([]*VM, len(containers.GetContainers()))
	var asking sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, c := range containers.GetContainers() {
		pod, ok := byID[c.GetPodSandboxId()]
		switch {
		case !ok: // a guest may outlive its pod
			pod = podOf(c)
		case pod.GetRuntimeHandler() == "": // VMs' pods have one
			continue
		}
		slots <- struct{}{}
		asking.Go(func() {
			found[i] = get(ctx, n, pod, c)
			<-slots
		})
	}
	asking.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var all []VM
	for _, v := range found {
		if v != nil {
			all = append(all, *v)
		}
	}
	slices.SortFunc(all, func(a, b VM) int {
		return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()),
			cmp.Compare(a.Status.GetCreatedAt(), b.Status.GetCreatedAt()))
	})
	return all, nil
}

// get returns a listed container as a VM; nil if it is not a VM, or is removed.
func get(ctx context.Context, n *cli.Node, pod *runtimeapi.PodSandbox, c *runtimeapi.Container) *VM {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	reply, err := n.Pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	if cli.NotFound(err) {
		return nil
	}
	var info vminfo.Info
	if err == nil {
		info, err = vminfo.Read(reply.GetInfo())
	}
	switch {
	case err != nil:
		return &VM{Pod: pod, Status: asListed(c), Err: cli.Plain(err)}
	case info.VM == nil && reply.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN && reply.GetStatus().GetReason() != "":
		return &VM{Pod: pod, Status: reply.GetStatus(), Err: errors.New(reply.GetStatus().GetReason() + ": " + reply.GetStatus().GetMessage())}
	case info.VM == nil:
		return nil
	}
	return &VM{Pod: pod, Status: reply.GetStatus(), Info: *info.VM, PID: info.PID}
}

// podOf returns what a container's labels say of its pod, which is gone.
func podOf(c *runtimeapi.Container) *runtimeapi.PodSandbox {
	l := c.GetLabels()
	return &runtimeapi.PodSandbox{Id: c.GetPodSandboxId(), Metadata: &runtimeapi.PodSandboxMetadata{
		Name: l["io.kubernetes.pod.name"], Namespace: l["io.kubernetes.pod.namespace"], Uid: l["io.kubernetes.pod.uid"],
	}}
}

// asListed returns the part of a container's status that a list contains.
func asListed(c *runtimeapi.Container) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.GetId(), Metadata: c.GetMetadata(), State: c.GetState(), CreatedAt: c.GetCreatedAt(),
		Image: c.GetImage(), ImageId: c.GetImageId(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
	}
}
