// Package attachment finds the containers of attachment pods, which hold the volumes and the
// networks that running VMs get. It owns the check that such a pod is for the VM. What a VM does with
// them is its callers'.
package attachment

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Pods is what the package asks containerd's CRI.
type Pods interface {
	ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
	PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error)
}

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Find returns the config of a container that runs in an attachment pod of a VM. A user who
// may give orders to a VM may name any container of the node: so its pod must be in the
// VM's namespace, and must name the VM's pod.
func Find(ctx context.Context, pods Pods, r record.Container, id string) (*runtimeapi.ContainerConfig, error) {
	found, err := find(ctx, pods, r, id)
	if err != nil {
		return nil, err
	}
	return found.Config, nil
}

// Sandbox is [Find], and returns the ID of the pod's sandbox.
func Sandbox(ctx context.Context, pods Pods, r record.Container, id string) (string, error) {
	found, err := find(ctx, pods, r, id)
	if err != nil {
		return "", err
	}
	return found.SandboxID, nil
}

// found is what containerd says of a container.
type found struct {
	SandboxID string                      `json:"sandboxID"`
	Config    *runtimeapi.ContainerConfig `json:"config"`
}

func find(ctx context.Context, pods Pods, r record.Container, id string) (*found, error) {
	if !containerID.MatchString(id) {
		return nil, fmt.Errorf("%w: %.80q is not a container's id", vmerrors.ErrInvalid, id)
	}
	reply, err := pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask containerd for container %s: %w", id, err)
	}
	var info found
	if err := json.Unmarshal([]byte(reply.GetInfo()["info"]), &info); err != nil {
		return nil, fmt.Errorf("read containerd's verbose status of container %s: %w", id, err)
	}
	pod, err := pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: info.SandboxID})
	if err != nil {
		return nil, fmt.Errorf("ask containerd for the pod of container %s: %w", id, err)
	}
	own, theirs := r.Sandbox.Value.GetMetadata(), pod.GetStatus()
	if theirs.GetMetadata().GetNamespace() != own.GetNamespace() || theirs.GetAnnotations()[order.Annotation] != own.GetUid() || own.GetUid() == "" {
		return nil, fmt.Errorf("%w: container %s is not of an attachment pod of this VM: such a pod is in namespace %s, with the annotation %s: %q",
			vmerrors.ErrInvalid, id, own.GetNamespace(), order.Annotation, own.GetUid())
	}
	if theirs.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || reply.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, fmt.Errorf("%w: container %s of attachment pod %s does not run, so that what it has may be gone",
			vmerrors.ErrState, id, theirs.GetMetadata().GetName())
	}
	return &info, nil
}
