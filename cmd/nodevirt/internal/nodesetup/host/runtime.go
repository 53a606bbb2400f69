package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/vms"
)

// shutdown is how long a guest may take to shut down.
const shutdown = 30 * time.Second

// Running returns the running containers, by ID, with a name for messages.
func (h Host) Running(ctx context.Context, socket string) (map[string]string, error) {
	n, err := cli.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	list, err := n.Pods.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("list containers at %s: %w", socket, cli.Plain(err))
	}
	all := map[string]string{}
	for _, c := range list.GetContainers() {
		labels := c.GetLabels()
		all[c.GetId()] = fmt.Sprintf("%s/%s/%s (%s)", labels["io.kubernetes.pod.namespace"], labels["io.kubernetes.pod.name"],
			c.GetMetadata().GetName(), cli.ShortID(c.GetId()))
	}
	return all, nil
}

// Failed reports whether a container was stopped: not if it ended with exit code 0 or is removed.
func (h Host) Failed(ctx context.Context, socket, id string) (bool, error) {
	n, err := cli.Dial(ctx, socket)
	if err != nil {
		return false, err
	}
	defer n.Close()
	reply, err := n.Pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if cli.NotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get the status of container %s: %w", cli.ShortID(id), cli.Plain(err))
	}
	st := reply.GetStatus()
	ended := st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetExitCode() == 0
	return st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING && !ended, nil
}

// VMs returns the names of the running VMs.
func (h Host) VMs(ctx context.Context, socket string) ([]string, error) {
	n, err := cli.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	list, err := vms.List(ctx, n)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range list {
		if v.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			names = append(names, v.Namespace()+"/"+v.Name())
		}
	}
	return names, nil
}

// RemoveVMs shuts all VMs down and removes their pods from the node.
func (h Host) RemoveVMs(ctx context.Context, socket string) error {
	n, err := cli.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer n.Close()
	list, err := vms.List(ctx, n)
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range list {
		if err := vms.Remove(ctx, n, v.Pod.GetId(), v.Status.GetId(), shutdown); err != nil {
			errs = append(errs, fmt.Errorf("remove VM %s/%s: %w", v.Namespace(), v.Name(), err))
		}
	}
	return errors.Join(errs...)
}
