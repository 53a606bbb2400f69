package cri

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withSandbox is a node with a VM's sandbox, whose stats get no addition.
type withSandbox struct{ noVMs }

func (withSandbox) Any(string) bool { return true }
func (withSandbox) AddToPodStats(pod *runtimeapi.PodSandboxStats) {
	pod.Attributes = &runtimeapi.PodSandboxAttributes{Id: "ours"}
}

// TestAskedAgain: a link that changed while containerd read the pods' networks does not fail the stats of all
// pods. Another error, and one that does not end, reach the client.
func TestAskedAgain(t *testing.T) {
	changed := status.Error(codes.Unknown, "failed to obtain network stats: results may be incomplete or inconsistent")
	reply, err := encode(&runtimeapi.ListPodSandboxStatsResponse{Stats: []*runtimeapi.PodSandboxStats{{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		err    error
		errors int
		calls  int
		fails  bool
	}{
		{"changed twice", changed, 2, 3, false},
		{"always changes", changed, 100, 1 + maxAgain, true},
		{"another error", status.Error(codes.Unknown, "no metrics"), 1, 1, true},
		{"another code", status.Error(codes.NotFound, "results may be incomplete or inconsistent"), 1, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0 // one after the other
			w := newWire(t, withSandbox{}, func(_ any, s grpc.ServerStream) error {
				if calls++; calls <= c.errors {
					return c.err
				}
				return s.SendMsg(&reply)
			})
			o := do(t.Context(), t, w.client, runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName, frame{})
			if calls != c.calls || (len(o.status) > 0) != c.fails || c.fails != (len(o.replies) == 0) {
				t.Errorf("%d calls, status %q, %d replies", calls, o.status, len(o.replies))
			}
		})
	}
}
