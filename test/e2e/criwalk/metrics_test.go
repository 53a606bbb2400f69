package criwalk

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lacking are the metrics that a VM has none of, and why.
func lacking() map[string]string {
	return map[string]string{
		"container_file_descriptors":             "QEMU's files are not the guest's",
		"container_sockets":                      "nor are its sockets",
		"container_spec_memory_swap_limit_bytes": "a VM's group has no limit of swap",
	}
}

// TestMetrics compares the metrics of a VM with those of a sidecar of the same pod: which ones there
// are, with their kinds and the numbers of their labels.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newPod(t, "metrics", "vm").run()
	w := newWalk(t, nil, newSubject(p, "compute", suite.machine), newSubject(p, "sidecar", suite.process))
	w.both((*subject).create)
	w.both((*subject).start)
	for _, method := range []string{"ListPodSandboxMetrics", "StreamPodSandboxMetrics"} {
		reply, err := call(t.Context(), w.methods[method], nodeCases()[method])
		assert.NilError(t, err)
		var pods []*runtimeapi.PodSandboxMetrics
		switch r := reply.(type) {
		case *runtimeapi.ListPodSandboxMetricsResponse:
			pods = r.PodMetrics
		case *runtimeapi.StreamPodSandboxMetricsResponse:
			pods = r.PodSandboxMetrics
		}
		machine, process := w.machine.metrics(pods), w.process.metrics(pods)
		for _, name := range slices.Sorted(maps.Keys(process)) {
			if lacking()[name] == "" && machine[name] != process[name] {
				t.Errorf("%s: %s of an ordinary container is %s, a VM's %q", method, name, process[name], machine[name])
			}
		}
		for name := range machine {
			if process[name] == "" {
				t.Errorf("%s: only a VM has %s", method, name)
			}
		}
	}
}

// metrics are the kinds of a container's metrics, by their names.
func (s *subject) metrics(pods []*runtimeapi.PodSandboxMetrics) map[string]string {
	s.t.Helper()
	for _, p := range pods {
		for _, c := range p.GetContainerMetrics() {
			if p.GetPodSandboxId() != s.pod.id || c.GetContainerId() != s.id {
				continue
			}
			kinds := map[string]string{}
			for _, m := range c.GetMetrics() {
				kinds[m.Name] = fmt.Sprintf("a %s with %d labels", m.MetricType, len(m.LabelValues))
			}
			return kinds
		}
	}
	s.t.Fatalf("no metrics of %s", s.name)
	return nil
}
