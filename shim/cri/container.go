package cri

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *call) createContainer(r *runtimeapi.CreateContainerRequest, f frame) error {
	sandbox, err := c.sandboxOf(r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if sandbox == "" {
		return c.pass(f)
	}
	id, err := c.Machines.Create(c.ctx, sandbox, r.GetConfig())
	if notVM(err) {
		return c.pass(f)
	}
	if err != nil {
		return err
	}
	return c.send(&runtimeapi.CreateContainerResponse{ContainerId: id})
}

func (c *call) startContainer(r *runtimeapi.StartContainerRequest) (proto.Message, error) {
	return &runtimeapi.StartContainerResponse{}, c.Machines.Start(c.ctx, r.GetContainerId())
}

func (c *call) stopContainer(r *runtimeapi.StopContainerRequest) (proto.Message, error) {
	return &runtimeapi.StopContainerResponse{}, c.Machines.Stop(c.ctx, r.GetContainerId(), seconds(r.GetTimeout()))
}

// seconds is a timeout of CRI. More than a Duration holds means the same to a
// guest as the longest.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

func (c *call) removeContainer(r *runtimeapi.RemoveContainerRequest) (proto.Message, error) {
	return &runtimeapi.RemoveContainerResponse{}, c.Machines.Remove(c.ctx, r.GetContainerId())
}

func (c *call) containerStatus(r *runtimeapi.ContainerStatusRequest) (proto.Message, error) {
	return c.Machines.Status(r.GetContainerId(), r.GetVerbose())
}
