package layout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
)

// TestDetect reads nodes as the distributions' installers leave them. The folders of testdata are the
// nodes' roots; the golden files have the layouts and the kubelet's new file.
func TestDetect(t *testing.T) {
	nodes, err := filepath.Glob("testdata/*/root")
	if err != nil || len(nodes) == 0 {
		t.Fatalf("no nodes: %v", err)
	}
	for _, dir := range nodes {
		name := filepath.Base(filepath.Dir(dir))
		t.Run(name, func(t *testing.T) {
			root := open(t, dir)
			l, err := layout.Detect(root)
			if err != nil {
				t.Fatal(err)
			}
			e, err := l.Kubelet(root, "/run/nodevirt/nodevirt.sock")
			if err != nil {
				t.Fatal(err)
			}
			if socket, err := l.Runtime(root); err != nil || socket != l.Containerd {
				t.Errorf("the kubelet uses %s, %v", socket, err)
			}
			golden.Assert(t, fmt.Sprintf("%s\nunit %s\ncontainerd %s\nkubeconfig %s\n\n/%s:\n%s",
				l.Name, l.Unit, l.Containerd, l.Kubeconfig, e.Path, e.Text), name+"/want.golden")
		})
	}
}

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

const (
	kubeletUnit = "usr/lib/systemd/system/kubelet.service"
	dropIn      = kubeletUnit + ".d/10-kubeadm.conf"
	reads       = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n"
	defaults    = "etc/default/kubelet"
	k3sUnit     = "etc/systemd/system/k3s.service"
	k0sUnit     = "etc/systemd/system/k0sworker.service"
)

// TestRuntime: the kubelet's socket, wherever its administrator has set it.
func TestRuntime(t *testing.T) {
	const (
		kubeadm = "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n" +
			"EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\n" +
			"ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n"
		flags  = "var/lib/kubelet/kubeadm-flags.env"
		config = "var/lib/kubelet/config.yaml"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the kubelet's default": {nil, "/run/containerd/containerd.sock"},
		"its file":              {map[string]string{config: "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///var/run/other/c.sock\n"}, "/run/other/c.sock"},
		"kubeadm's arguments": {map[string]string{
			config: "containerRuntimeEndpoint: unix:///run/x.sock\n",
			flags:  "KUBELET_KUBEADM_ARGS=\"--v=2 --container-runtime-endpoint=unix:///run/other/c.sock --x=y\"\n",
		}, "/run/other/c.sock"},
		"the administrator's arguments": {map[string]string{
			flags:    "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/x.sock\"\n",
			defaults: "# none\nKUBELET_EXTRA_ARGS=--container-runtime-endpoint /run/other/c.sock\n",
		}, "/run/other/c.sock"},
		"a later drop-in": {map[string]string{
			"etc/systemd/system/kubelet.service.d/20-mine.conf": "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///run/other/c.sock'\n",
		}, "/run/other/c.sock"},
		"a drop-in of the kubelet's file": {map[string]string{
			config: "containerRuntimeEndpoint: unix:///run/x.sock\n",
			"etc/systemd/system/kubelet.service.d/20-mine.conf": "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--config-dir=/etc/kubelet.d\"\n",
			"etc/kubelet.d/10.conf":                             "containerRuntimeEndpoint: unix:///run/other/c.sock\n",
		}, "/run/other/c.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, map[string]string{kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet\n", dropIn: kubeadm})
			put(t, dir, c.files)
			root := open(t, dir)
			l, err := layout.Detect(root)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := l.Runtime(root); err != nil || got != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
			// Ours is the last.
			e, err := l.Kubelet(root, "/run/nodevirt/nodevirt.sock")
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, map[string]string{e.Path: e.Text})
			if got, err := l.Runtime(root); err != nil || got != "/run/nodevirt/nodevirt.sock" {
				t.Errorf("after the change: %s, %v", got, err)
			}
		})
	}
}

// TestInheritedArguments: the kubelet's file replaces the arguments that a drop-in sets, so it has them, too.
func TestInheritedArguments(t *testing.T) {
	const adds = "--container-runtime-endpoint=unix:///run/nodevirt/nodevirt.sock"
	for name, c := range map[string]struct {
		environment, file, want string
	}{
		"a drop-in":             {"Environment=\"KUBELET_EXTRA_ARGS=--max-pods=77 --node-ip=192.0.2.1\"\n", "", "KUBELET_EXTRA_ARGS=\"--max-pods=77 --node-ip=192.0.2.1 " + adds + "\"\n"},
		"a file wins":           {"Environment=KUBELET_EXTRA_ARGS=--max-pods=77\n", "KUBELET_EXTRA_ARGS=--v=2\n", "KUBELET_EXTRA_ARGS=\"--v=2 " + adds + "\"\n"},
		"a file without it":     {"Environment=KUBELET_EXTRA_ARGS=--max-pods=77\n", "# none\n", "# none\nKUBELET_EXTRA_ARGS=\"--max-pods=77 " + adds + "\"\n"},
		"a file of the drop-in": {"EnvironmentFile=/etc/mine\n", "", "KUBELET_EXTRA_ARGS=\"--mine " + adds + "\"\n"},
		"none":                  {"", "", "KUBELET_EXTRA_ARGS=\"" + adds + "\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, map[string]string{
				kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet\n", dropIn: reads, defaults: c.file, "etc/mine": "KUBELET_EXTRA_ARGS=--mine\n",
				"etc/systemd/system/kubelet.service.d/05-mine.conf": "[Service]\n" + c.environment,
			})
			root := open(t, dir)
			l, err := layout.Detect(root)
			if err != nil {
				t.Fatal(err)
			}
			e, err := l.Kubelet(root, "/run/nodevirt/nodevirt.sock")
			if err != nil || e.Path != defaults || e.Text != c.want {
				t.Errorf("%v: %s has %q, want %q", err, e.Path, e.Text, c.want)
			}
		})
	}
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefused: a node that the package does not know is left alone.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no Kubernetes":     {nil, "found neither"},
		"another kubelet":   {map[string]string{kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet\n"}, "not set up by kubeadm"},
		"quotes":            {map[string]string{kubeletUnit: "x", dropIn: reads, defaults: "KUBELET_EXTRA_ARGS=\"a\" \"b\"\n"}, "one pair of quotes"},
		"two lines":         {map[string]string{kubeletUnit: "x", dropIn: reads, defaults: "KUBELET_EXTRA_ARGS=--a \\\n--b\n"}, "on one line"},
		"k3s with docker":   {map[string]string{k3sUnit: "[Service]\nExecStart=/usr/local/bin/k3s server --docker\n"}, "sets --docker"},
		"k3s with a folder": {map[string]string{k3sUnit: "x", "etc/rancher/k3s/config.yaml": "data-dir: /srv\n"}, "sets data-dir"},
		"k0s' containerd":   {map[string]string{k0sUnit: "ExecStart=k0s worker --cri-socket=remote:/x\n"}, "sets --cri-socket"},
		"k0s' controller":   {map[string]string{"etc/systemd/system/k0scontroller.service": "ExecStart=k0s controller\n"}, "runs no kubelet"},
		"k0s' quotes":       {map[string]string{k0sUnit: "ExecStart=k0s worker \"--kubelet-extra-args=--a --b\"\n"}, "without quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, c.files)
			root := open(t, dir)
			l, err := layout.Detect(root)
			if err == nil {
				_, err = l.Kubelet(root, "/run/x.sock")
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, not %q", err, c.want)
			}
		})
	}
}
