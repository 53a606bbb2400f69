package lifecycle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestForeignArchitecture: a node without QEMU for a guest's architecture refuses the guest.
func TestForeignArchitecture(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		const arm = `{"architecture": "arm64", "domain": {"devices": {}}, ` + restOfVMI
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: arm})
		_, err := n.Create(t.Context(), pod, request(0))
		if !errors.Is(err, vmerrors.ErrInvalid) || !strings.Contains(err.Error(), "spec.architecture: this node runs no guests of arm64") {
			t.Fatalf("%v", err)
		}
		n.wantNothing(t)
	})
}
