package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxIndex has the ids of VMs' sandboxes.
type sandboxIndex interface {
	// Any reports whether the id of a VM's sandbox begins with a prefix.
	Any(prefix string) bool
	// Handler returns the runtime handler that the client requested for a VM's sandbox.
	Handler(sandboxID string) (string, bool)
}

// finder finds the sandboxes that requests name.
type finder struct {
	sandboxes sandboxIndex
	pods      runtimeapi.RuntimeServiceClient // containerd's
}

// sandbox asks containerd for the full ID of a VM's sandbox, which may be given by a
// prefix. It returns "" if the sandbox does not belong to a VM or does not exist.
func (f finder) sandbox(ctx context.Context, id string) (string, error) {
	if id == "" || !f.sandboxes.Any(id) {
		return "", nil
	}
	if _, ok := f.sandboxes.Handler(id); ok {
		return id, nil
	}
	reply, err := f.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	whole := reply.GetStatus().GetId()
	if _, ok := f.sandboxes.Handler(whole); !ok {
		return "", nil
	}
	return whole, nil
}
