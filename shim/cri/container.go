package cri

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *call) createContainer(r *runtimeapi.CreateContainerRequest, f frame) error {
	if id, ok := c.machineTarget(r.GetConfig()); ok {
		return status.Error(codes.Unimplemented, fmt.Sprintf("container %q is a virtual machine: "+
			"it has no processes that another container could share; leave the target out (kubectl debug without --target)", id))
	}
	sandbox, err := c.sandboxOf(r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if sandbox == "" {
		return c.pass(f)
	}
	id, err := c.Containers.Create(c.ctx, sandbox, r.GetConfig())
	if notVM(err) {
		return c.pass(f)
	}
	if err != nil {
		return err
	}
	return c.send(&runtimeapi.CreateContainerResponse{ContainerId: id})
}

// machineTarget returns the VM container whose PID namespace a container requests.
func (c *call) machineTarget(config *runtimeapi.ContainerConfig) (id string, ok bool) {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	id = options.GetTargetId()
	return id, options.GetPid() == runtimeapi.NamespaceMode_TARGET && c.Containers.Has(id)
}

func (c *call) startContainer(r *runtimeapi.StartContainerRequest) (proto.Message, error) {
	return &runtimeapi.StartContainerResponse{}, c.Containers.Start(c.ctx, r.GetContainerId())
}

func (c *call) stopContainer(r *runtimeapi.StopContainerRequest) (proto.Message, error) {
	return &runtimeapi.StopContainerResponse{}, c.Containers.Stop(c.ctx, r.GetContainerId(), seconds(r.GetTimeout()))
}

// seconds converts a timeout of CRI. Values over the range of a Duration become the
// longest Duration.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

func (c *call) removeContainer(r *runtimeapi.RemoveContainerRequest) (proto.Message, error) {
	return &runtimeapi.RemoveContainerResponse{}, c.Containers.Remove(c.ctx, r.GetContainerId())
}

func (c *call) containerStatus(r *runtimeapi.ContainerStatusRequest) (proto.Message, error) {
	return c.Reports.Status(r.GetContainerId(), r.GetVerbose())
}
