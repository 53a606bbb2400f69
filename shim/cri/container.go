package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// containerLife creates, starts, changes and ends VM containers.
type containerLife interface {
	vmContainers
	Create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (string, error)
	// Restore is Create for a VM that goes on from the checkpoint in an archive.
	Restore(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, archive string) (string, error)
	Start(ctx context.Context, id string) error
	Stop(ctx context.Context, id string, timeout time.Duration) error
	Remove(ctx context.Context, id string) error
	Update(ctx context.Context, id string, change *runtimeapi.LinuxContainerResources) error
	ReopenLog(id string) error
}

// checkpoints saves VMs; package save's Saves.
type checkpoints interface {
	// Checkpoint writes a checkpoint to a new file. The guest pauses for limit at most; 0 is the default.
	Checkpoint(ctx context.Context, id, location string, limit time.Duration) error
}

// containerCalls are the calls that change containers.
type containerCalls struct {
	find        finder
	containers  containerLife
	checkpoints checkpoints
}

func (s *containerCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_CreateContainer_FullMethodName:          decoded(s.create),
		runtimeapi.RuntimeService_StartContainer_FullMethodName:           ofVM(s.containers, s.start),
		runtimeapi.RuntimeService_StopContainer_FullMethodName:            ofVM(s.containers, s.stop),
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName:          ofVM(s.containers, s.remove),
		runtimeapi.RuntimeService_ReopenContainerLog_FullMethodName:       ofVM(s.containers, s.reopenLog),
		runtimeapi.RuntimeService_UpdateContainerResources_FullMethodName: ofVM(s.containers, s.update),
		runtimeapi.RuntimeService_CheckpointContainer_FullMethodName:      ofVM(s.containers, s.checkpoint),
	}
}

// create creates a VM container in a VM's sandbox, and forwards the call for an
// ordinary container.
func (s *containerCalls) create(c *call, r *runtimeapi.CreateContainerRequest, f frame) error {
	if id, ok := s.vmTarget(r.GetConfig()); ok {
		return status.Error(codes.Unimplemented, fmt.Sprintf("container %q is a virtual machine: "+
			"it has no processes that another container could share; leave the target out (kubectl debug without --target)", id))
	}
	sandbox, err := s.find.sandbox(c.ctx, r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if sandbox == "" {
		return c.pass(f)
	}
	id, err := s.containers.Create(c.ctx, sandbox, r.GetConfig())
	if errors.Is(err, vmerrors.ErrNotVM) {
		return c.pass(f)
	}
	if err != nil {
		return err
	}
	return c.send(&runtimeapi.CreateContainerResponse{ContainerId: id})
}

// vmTarget returns the VM container whose PID namespace a container requests.
func (s *containerCalls) vmTarget(config *runtimeapi.ContainerConfig) (id string, ok bool) {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	id = options.GetTargetId()
	return id, options.GetPid() == runtimeapi.NamespaceMode_TARGET && s.containers.Has(id)
}

func (s *containerCalls) start(ctx context.Context, r *runtimeapi.StartContainerRequest) (proto.Message, error) {
	return &runtimeapi.StartContainerResponse{}, s.containers.Start(ctx, r.GetContainerId())
}

func (s *containerCalls) stop(ctx context.Context, r *runtimeapi.StopContainerRequest) (proto.Message, error) {
	return &runtimeapi.StopContainerResponse{}, s.containers.Stop(ctx, r.GetContainerId(), seconds(r.GetTimeout()))
}

func (s *containerCalls) remove(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (proto.Message, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.containers.Remove(ctx, r.GetContainerId())
}

func (s *containerCalls) reopenLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (proto.Message, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, s.containers.ReopenLog(r.GetContainerId())
}

func (s *containerCalls) update(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (proto.Message, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.containers.Update(ctx, r.GetContainerId(), r.GetLinux())
}

func (s *containerCalls) checkpoint(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) (proto.Message, error) {
	return &runtimeapi.CheckpointContainerResponse{}, s.checkpoints.Checkpoint(ctx, r.GetContainerId(), r.GetLocation(), seconds(r.GetTimeout()))
}

// seconds converts a timeout of CRI. Values over the range of a Duration become the
// longest Duration.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}
