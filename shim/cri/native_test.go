package cri

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestNative: an error of containerd's that the shim wraps reaches the client with its code, and
// with gRPC's words nowhere in its message.
func TestNative(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		said := status.Error(code, "no such sandbox")
		w := newWire(t, noVMs{}, func(any, grpc.ServerStream) error { return said })
		pods := runtimeapi.NewRuntimeServiceClient(Native(w.front.backend))
		_, err := pods.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "p"})
		got := status.Convert(toStatus(fmt.Errorf("ask containerd for sandbox p: %w", err)))
		if got.Code() != code || !strings.HasPrefix(got.Message(), "ask containerd for sandbox p: no such sandbox") ||
			strings.Contains(got.Message(), "rpc error") {
			t.Errorf("%s became %s: %s", code, got.Code(), got.Message())
		}
	}
}
