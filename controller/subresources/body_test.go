package subresources

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestBodyIsBounded: the body of a subresource has no more elements of lists than a reviewed object.
func TestBodyIsBounded(t *testing.T) {
	for n, want := range map[int]bool{bounds.Elements: true, bounds.Elements + 1: false} {
		text := `{"spec":{"dataVolumeTemplates":[{}` + strings.Repeat(",{}", n-1) + `]}}`
		c := &call{Request: httptest.NewRequest(http.MethodPut, "/", strings.NewReader(text)), w: httptest.NewRecorder()}
		vm := new(kubevirt.VirtualMachine)
		err := c.body(vm)
		if (err == nil) != want || !want && (len(vm.Spec.DataVolumeTemplates) > 0 || !strings.Contains(err.Error(), "8193 elements together")) {
			t.Errorf("%d elements: %d, %v", n, len(vm.Spec.DataVolumeTemplates), err)
		}
	}
}
