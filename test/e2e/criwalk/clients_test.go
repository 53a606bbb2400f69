package criwalk

import (
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestManyClients has several clients make the same call at once: as many get OK as from
// containerd, and none gets a code that containerd does not return.
func TestManyClients(t *testing.T) {
	t.Parallel()
	p := newPod(t, "clients", "vm").run()
	machine, process := newSubject(p, "compute", suite.machine), newSubject(p, "sidecar", suite.process)
	for _, step := range []struct {
		name string
		call func(*subject) error
		once bool // one of them does it, and the others are refused
		code codes.Code
	}{
		{"create", (*subject).create, true, codes.FailedPrecondition},
		{"start", (*subject).start, true, codes.Unknown},
		{"status", (*subject).status, false, codes.OK},
		{"stop", (*subject).stop, false, codes.OK},
		// containerd refuses a removal while another is under way; a VM's waits for it.
		{"remove", (*subject).removeIt, false, codes.Unknown},
	} {
		for _, s := range []*subject{machine, process} {
			got := atOnce(s, step.call)
			for code, n := range got {
				if code != codes.OK && code != step.code {
					t.Errorf("%s of %s: %d times %s", step.name, s.name, n, code)
				}
			}
			if step.once && got[codes.OK] != 1 || got[codes.OK] == 0 {
				t.Errorf("%s of %s: %v", step.name, s.name, got)
			}
		}
	}
}

func (s *subject) status() error {
	_, err := suite.cri.ContainerStatus(s.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: s.id})
	return err
}

// atOnce makes a call six times and counts the answers. The subject gets the id that one answer
// has.
func atOnce(s *subject, call func(*subject) error) map[codes.Code]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[codes.Code]int{}
	id := s.id
	for range 6 {
		all.Go(func() {
			own := *s
			err := call(&own)
			mu.Lock()
			defer mu.Unlock()
			got[status.Code(err)]++
			if err == nil {
				id = own.id
			}
		})
	}
	all.Wait()
	s.id = id
	return got
}
