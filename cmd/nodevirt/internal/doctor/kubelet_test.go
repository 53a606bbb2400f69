package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
)

// TestKubeletSocket: a tool that manages the node's files has set the kubelet's endpoint back.
func TestKubeletSocket(t *testing.T) {
	const kubeadm = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
	ours := config.Default()
	ours.Kubernetes.Kubeconfig = "/etc/kubernetes/kubelet.conf"
	for name, tt := range map[string]struct {
		config config.Config
		extra  string // the administrator's arguments
		level  Level
		detail string
	}{
		"ours":         {ours, "--v=2 --container-runtime-endpoint=unix://" + ours.Listen, OK, "uses " + ours.Listen},
		"set back":     {ours, "--v=2", Fail, "uses /run/containerd/containerd.sock, not the shim's socket"},
		"not a socket": {ours, "--container-runtime-endpoint=tcp://x", Warn, "is not the path of a socket"},
		"no kubelet":   {config.Default(), "--v=2", OK, "has no kubelet"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n", "etc/default/kubelet": "KUBELET_EXTRA_ARGS=" + tt.extra + "\n",
			"usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": kubeadm,
		} {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		if f := kubeletSocket(root, tt.config); f.Level != tt.level || !strings.Contains(f.Detail, tt.detail) || (f.Remedy == "") != (tt.level == OK) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
