package nodesetup

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

// TestMerge: settings of the same name become comments, lists of several lines included.
func TestMerge(t *testing.T) {
	const ours = "user = \"+65534\"\ncgroup_controllers = [ ]\n"
	text := merge(qemuConf, ours)
	golden.Assert(t, text, "merged.conf.golden")
	if again := merge(text, ours); again != text {
		t.Error("a second merge changed the text")
	}
	if next := merge(text, deploy.QEMUConf); next != merge(qemuConf, deploy.QEMUConf) {
		t.Errorf("another version's settings are not those of a first merge:\n%s", next)
	}
}

// TestLibvirtGuests: Debian's service waits five minutes for each guest, one after the other.
func TestLibvirtGuests(t *testing.T) {
	s, f, _ := newNode(t, "kubeadm-debian")
	put(t, f.dir, map[string]string{
		"usr/lib/systemd/system/libvirt-guests.service": "[Service]\nEnvironmentFile=-/etc/default/libvirt-guests\n",
		"etc/default/libvirt-guests":                    "#ON_BOOT=ignore\nSHUTDOWN_TIMEOUT=300\nURIS=default\n",
	})
	before := tree(t, f.dir)
	if err := s.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	text := tree(t, f.dir)["etc/default/libvirt-guests"]
	for _, want := range []string{"\n# nodevirt: SHUTDOWN_TIMEOUT=300\nURIS=default\n", "\nSHUTDOWN_TIMEOUT=60\n", "\nPARALLEL_SHUTDOWN="} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if err := s.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	original(t, f, before)
}

// TestShimConfig: the installation sets defaults alone.
func TestShimConfig(t *testing.T) {
	s, _, _ := newNode(t, "k3s-server")
	l, err := layout.Detect(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := s.Root.MkdirAll("etc/nodevirt", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.Root.WriteFile(configPath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(address, kubeconfig string) string {
		t.Helper()
		e, c, err := shimConfig(s.Root, l)
		if err != nil || c.Containerd.Address != address || c.Kubernetes.Kubeconfig != kubeconfig {
			t.Errorf("%v: containerd %q, kubeconfig %q", err, c.Containerd.Address, c.Kubernetes.Kubeconfig)
		}
		return e.text
	}
	text := check(l.Containerd, l.Kubeconfig)
	if strings.Count(text, "\n") != strings.Count(deploy.ShimConfig, "\n") {
		t.Error("the default config has more lines than before")
	}
	write(text)
	if check(l.Containerd, l.Kubeconfig) != text {
		t.Error("a second change changed the text")
	}
	write("log_level = \"debug\"\n[containerd]\naddress = \"/x.sock\"\n[kubernetes]\nkubeconfig = \"/y\"\n")
	check("/x.sock", "/y")
	write("[kubernetes] # none\n")
	if _, _, err := shimConfig(s.Root, l); err != nil {
		t.Error(err)
	}
	write("handler = 7\n")
	if _, _, err := shimConfig(s.Root, l); err == nil {
		t.Error("a config that cannot be read gave no error")
	}
	if config.Default().Kubernetes.Kubeconfig != "" {
		t.Error("the default kubeconfig is not empty")
	}
}
