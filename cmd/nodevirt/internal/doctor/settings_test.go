package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/config"
)

func TestSnapshotter(t *testing.T) {
	if f := snapshotter([]string{"native", "overlayfs"}, "overlayfs"); f.Level != OK {
		t.Errorf("%+v", f)
	}
	if f := snapshotter([]string{"overlayfs", "native"}, "stargz"); f.Level != Fail || !strings.Contains(f.Detail, "native, overlayfs") {
		t.Errorf("%+v", f)
	}
}

func TestSandboxHandler(t *testing.T) {
	all := []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}, {Name: "crun"}}
	for wanted, level := range map[string]Level{"": OK, "runc": OK, "kata": Fail} {
		if f := sandboxHandler(all, wanted); f.Level != level {
			t.Errorf("%q: %+v", wanted, f)
		}
	}
	if f := sandboxHandler(nil, "runc"); f.Level != OK {
		t.Errorf("a runtime that reports no handlers: %+v", f)
	}
}

// TestKubeconfig: a kubeconfig that is not there, or none, is a finding.
func TestKubeconfig(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("no: kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, level := range map[string]Level{"": OK, broken: Warn, broken + ".none": Warn} {
		if f := checkKubeconfig(t.Context(), config.Config{Kubernetes: config.Kubernetes{Kubeconfig: file}}); f.Level != level {
			t.Errorf("%q: %+v", file, f)
		}
	}
}
