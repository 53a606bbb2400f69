package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestOriginsTakeTurns: writing an image's disk to a volume waits as expanding one does, reports
// that it waits, and ends with its pod.
func TestOriginsTakeTurns(t *testing.T) {
	n := newNode(t)
	release, err := n.expander.turns.Take(t.Context(), "many", func() {})
	if err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(n.dir, "volumes", "d")
	makeFolder(t, host)
	r := n.container(t, "vm", vmspec.Disk{Name: "d", Source: vmspec.SourcePVC, Host: host, Origin: vmspec.OriginOwn})
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop"}}
	why := errors.New("the pod is removed")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := n.Maker.Create(ctx, r, func(_ string, p expand.Progress) {
		if p.Waiting {
			cancel(why)
		}
	}); !errors.Is(err, why) {
		t.Errorf("while another one is converted: %v", err)
	}
	release()
	if err := n.Maker.Create(t.Context(), r, func(_ string, p expand.Progress) {
		if p.Waiting {
			t.Error("it waits for nothing")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(host, imageFile)); err != nil || info.Size() == 0 {
		t.Errorf("the disk: %v, %v", info, err)
	}
}
