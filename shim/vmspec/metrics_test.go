package vmspec_test

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestMetricsOfTheNode: a guest reads them only if the pod is one that the controller lets it.
func TestMetricsOfTheNode(t *testing.T) {
	for name, text := range map[string]string{
		"port": `{"domain": {"memory": {"guest": "64Mi"}, "devices": {"downwardMetrics": {}}}}`,
		"disk": `{"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "m", "disk": {"bus": "virtio"}}]}}, "volumes": [{"name": "m", "downwardMetrics": {}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := vmspec.FromCRI(pod(vmi(text)), container(nil))
			if err == nil || !strings.Contains(err.Error(), "the pod has no annotation nodevirt.io/downward-metrics") {
				t.Errorf("a pod that its author made: %v", err)
			}
			if _, err := vmspec.FromCRI(pod(with(vmi(text), vmspec.AnnotationDownwardMetrics, "")), container(nil)); err != nil {
				t.Errorf("a pod that the controller made: %v", err)
			}
		})
	}
}
