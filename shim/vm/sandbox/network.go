package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NetworkNamespace asks containerd for the path of the network namespace of a
// sandbox that is ready.
func (s *Sandboxes) NetworkNamespace(ctx context.Context, id string) (string, error) {
	reply, err := s.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return "", fmt.Errorf("ask containerd for sandbox %s: %w", id, err)
	}
	if reply.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return "", fmt.Errorf("sandbox container %q is not running: a VM needs its pod's network", id)
	}
	netns, err := networkNamespace(reply.GetInfo()["info"])
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", id, err)
	}
	return netns, nil
}

// networkNamespace finds the path of a pod's network namespace in containerd's
// verbose status of the sandbox.
func networkNamespace(info string) (string, error) {
	var sandbox struct {
		RuntimeSpec *specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info), &sandbox); err != nil {
		return "", fmt.Errorf("read containerd's verbose status: %w", err)
	}
	if sandbox.RuntimeSpec != nil && sandbox.RuntimeSpec.Linux != nil {
		for _, ns := range sandbox.RuntimeSpec.Linux.Namespaces {
			if ns.Type == specs.NetworkNamespace && ns.Path != "" {
				return ns.Path, nil
			}
		}
	}
	return "", errors.New("containerd's verbose status names no network namespace of the pod's own")
}
