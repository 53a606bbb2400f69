package e2e

import (
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPodMetrics: a VM has the metrics that an ordinary container has, with as
// many labels as the descriptors say.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.halt).start()
	sidecar := p.sidecar("sleep", "1000000").start()
	reply, err := suite.cri.ListMetricDescriptors(t.Context(), &runtimeapi.ListMetricDescriptorsRequest{})
	assert.NilError(t, err)
	labels := map[string]int{}
	for _, d := range reply.Descriptors {
		labels[d.Name] = len(d.LabelKeys)
	}
	list, err := suite.cri.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	assert.NilError(t, err)
	stream, err := suite.cri.StreamPodSandboxMetrics(t.Context(), &runtimeapi.StreamPodSandboxMetricsRequest{})
	assert.NilError(t, err)
	for _, all := range [][]*runtimeapi.PodSandboxMetrics{
		list.PodMetrics, drained(t, stream, (*runtimeapi.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics),
	} {
		ours := metricsOf(t, all, p.id, vm.id)
		for name, m := range metricsOf(t, all, p.id, sidecar.id) {
			if name == "container_file_descriptors" || name == "container_sockets" || name == "container_ulimits_soft" {
				continue // of QEMU's processes, not of the guest
			}
			if ours[name] == nil || ours[name].MetricType != m.MetricType {
				t.Errorf("%s: the sidecar has %v, the VM %v", name, m, ours[name])
			}
		}
		for name, m := range ours {
			if len(m.LabelValues) != labels[name] || m.LabelValues[3] != vm.id {
				t.Errorf("%s has labels %q, its descriptor %d", name, m.LabelValues, labels[name])
			}
		}
	}
}

func metricsOf(t *testing.T, pods []*runtimeapi.PodSandboxMetrics, pod, container string) map[string]*runtimeapi.Metric {
	t.Helper()
	byName := map[string]*runtimeapi.Metric{}
	for _, p := range pods {
		for _, c := range p.ContainerMetrics {
			for _, m := range c.Metrics {
				if p.PodSandboxId == pod && c.ContainerId == container {
					byName[m.Name] = m
				}
			}
		}
	}
	if len(byName) == 0 {
		t.Errorf("no metrics of container %s", container)
	}
	return byName
}
