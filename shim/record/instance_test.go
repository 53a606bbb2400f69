package record_test

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// TestInstanceName: a VM has the name of its instance, unless its pod is of none, or has no name of one.
func TestInstanceName(t *testing.T) {
	for annotation, want := range map[string]string{
		"": "pod", "web": "web", "web.example": "web.example", "a\n": "pod", strings.Repeat("a", 254): "pod",
	} {
		var r record.Container
		r.Sandbox.Value = &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod"}, Annotations: map[string]string{"kubevirt.io/domain": annotation},
		}
		if got := r.InstanceName(); got != want {
			t.Errorf("%q: %q, want %q", annotation, got, want)
		}
	}
}
