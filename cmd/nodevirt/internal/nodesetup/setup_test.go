package nodesetup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
)

const qemuConf = "# Master configuration file.\nuser = \"libvirt-qemu\"\nspice_listen = \"::1\"\ncgroup_controllers = [ \"cpu\",\n  \"memory\" ]\n"

// newNode returns a node of a layout with libvirt and the programs, and a Setup for it.
func newNode(t *testing.T, layout string) (*Setup, *fake, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("layout/testdata", layout, "root"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"etc/libvirt/qemu.conf": qemuConf, "etc/libvirt/libvirtd.conf": "# none\n", "usr/local/bin/nodevirt-shim": "",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	f := &fake{
		dir: dir, kubeletRuns: true, labels: map[string]string{"zone": "a"}, running: map[string]string{"c1": "default/web/nginx"},
		kubeletFile: map[string]string{
			"kubeadm-debian": "etc/default/kubelet", "k3s-server": "etc/rancher/k3s/config.yaml.d/99-nodevirt.yaml",
			"k0s-worker": "etc/systemd/system/k0sworker.service.d/nodevirt.conf",
		}[layout],
		kubeletUnit: map[string]string{
			"kubeadm-debian": "kubelet.service", "k3s-server": "k3s.service", "k0s-worker": "k0sworker.service",
		}[layout],
	}
	out := &bytes.Buffer{}
	return &Setup{Root: root, Node: f, Out: out, Programs: "/usr/local/bin", Wait: 50 * time.Millisecond, Poll: time.Millisecond}, f, out
}

// tree returns the node's files and folders, except the lock and the folder of libraries' state, which
// distributions have.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		switch {
		case err != nil:
			return err
		case name == "" || name == "run" || name == lockPath || name == "var" || name == "var/lib":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[name] = info.Mode().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			all[name] += "\n" + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// original fails the test if the node is not as before.
func original(t *testing.T, f *fake, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, tree(t, f.dir)); diff != "" {
		t.Errorf("the node's files differ (-before +after):\n%s", diff)
	}
	if f.usesShim() || !f.kubeletRuns || f.shimRuns || f.shimEnabled {
		t.Errorf("the kubelet runs: %t, with the shim: %t; the shim runs: %t, enabled: %t", f.kubeletRuns, f.usesShim(), f.shimRuns, f.shimEnabled)
	}
	if f.tgtdRuns || f.limited {
		t.Errorf("tgtd runs: %t; nftables limits VMs: %t", f.tgtdRuns, f.limited)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a"}, f.labels); diff != "" {
		t.Errorf("labels differ:\n%s", diff)
	}
}

// installed fails the test if the node does not run VMs.
func installed(t *testing.T, f *fake) {
	t.Helper()
	if !f.usesShim() || !f.kubeletRuns || !f.shimRuns || !f.shimEnabled || f.labels[Label] != "true" {
		t.Errorf("the node is not installed: %+v", f)
	}
}

func TestInstallUninstall(t *testing.T) {
	for _, layout := range []string{"kubeadm-debian", "k3s-server", "k0s-worker"} {
		t.Run(layout, func(t *testing.T) {
			s, f, out := newNode(t, layout)
			before := tree(t, f.dir)
			if err := s.Install(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			installed(t, f)
			golden.Assert(t, out.String(), layout+".install.golden")
			calls := f.calls
			if err := s.Install(t.Context(), false); err != nil || f.calls != calls {
				t.Errorf("a second installation made %d changes, %v", f.calls-calls, err)
			}
			out.Reset()
			if err := s.Uninstall(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			original(t, f, before)
			golden.Assert(t, out.String(), layout+".uninstall.golden")
			calls = f.calls
			if err := s.Uninstall(t.Context(), false); err != nil || f.calls != calls {
				t.Errorf("a second uninstallation made %d changes, %v", f.calls-calls, err)
			}
		})
	}
}

func TestDryRun(t *testing.T) {
	s, f, _ := newNode(t, "kubeadm-debian")
	before := tree(t, f.dir)
	if err := s.Install(t.Context(), true); err != nil || f.calls > 0 {
		t.Errorf("%d changes, %v", f.calls, err)
	}
	original(t, f, before)
}

// TestRollBack fails each change of an installation, once.
func TestRollBack(t *testing.T) {
	for n := 1; ; n++ {
		s, f, _ := newNode(t, "kubeadm-debian")
		before := tree(t, f.dir)
		f.failAt = n
		err := s.Install(t.Context(), false)
		if err == nil {
			if f.calls >= n || n < 5 {
				t.Errorf("change %d of %d failed without an error", n, f.calls)
			}
			return
		}
		if !strings.Contains(err.Error(), "the node is as before") {
			t.Errorf("change %d: %v", n, err)
		}
		original(t, f, before)
	}
}

func TestRollBackOfABrokenNode(t *testing.T) {
	for want, prepare := range map[string]func(*fake){
		"the node is not ready: PLEG":           func(f *fake) { f.broken = true },
		"containers stopped: default/web/nginx": func(f *fake) { f.stops = true },
	} {
		s, f, _ := newNode(t, "kubeadm-debian")
		before := tree(t, f.dir)
		prepare(f)
		if err := s.Install(t.Context(), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, not %q", err, want)
		}
		original(t, f, before)
	}
}

// killed calls do, and reports whether it was killed.
func killed(t *testing.T, do func() error) (was bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, errKilled) {
				panic(r)
			}
			was = true
		}
	}()
	if err := do(); err != nil {
		t.Error(err)
	}
	return false
}

// TestKilled kills an installation, and then an uninstallation, at each of its changes. Either command
// then completes.
func TestKilled(t *testing.T) {
	for n := 1; ; n++ {
		for _, install := range []bool{true, false} {
			s, f, _ := newNode(t, "k3s-server")
			before := tree(t, f.dir)
			f.killAt = n
			done := !killed(t, func() error { return s.Install(t.Context(), false) })
			if done {
				done = !killed(t, func() error { return s.Uninstall(t.Context(), false) })
			}
			f.killAt = 0
			if install {
				if err := s.Install(t.Context(), false); err != nil {
					t.Errorf("install after a kill at change %d: %v", n, err)
				}
				installed(t, f)
			}
			if err := s.Uninstall(t.Context(), false); err != nil {
				t.Errorf("uninstall after a kill at change %d: %v", n, err)
			}
			original(t, f, before)
			if done && !install {
				return
			}
		}
	}
}

func TestUninstallRefuses(t *testing.T) {
	s, f, _ := newNode(t, "kubeadm-debian")
	before := tree(t, f.dir)
	if err := s.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	f.vms = []string{"default/web"}
	refused := func(want string) {
		t.Helper()
		calls := f.calls
		if err := s.Uninstall(t.Context(), false); err == nil || !strings.Contains(err.Error(), want) || f.calls != calls {
			t.Errorf("%d changes, error %v, not %q", f.calls-calls, err, want)
		}
	}
	refused("VMs run on this node: default/web")
	path := filepath.Join(f.dir, "etc/libvirt/qemu.conf")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("have changed since the installation: /etc/libvirt/qemu.conf")
	if err := s.Install(t.Context(), false); err == nil || !strings.Contains(err.Error(), "/etc/libvirt/qemu.conf") {
		t.Errorf("install over a changed file: %v", err)
	}
	if err := s.Uninstall(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if len(f.vms) > 0 || !slices.Contains(f.log, "remove VMs") {
		t.Error("the VMs were not removed")
	}
	original(t, f, before)
}

func TestInstallRefuses(t *testing.T) {
	for want, prepare := range map[string]func(*Setup, *fake){
		"no QEMU":                            func(_ *Setup, f *fake) { f.unfit = errors.New("no QEMU") },
		"repair it first":                    func(_ *Setup, f *fake) { f.kubeletRuns = false },
		"find nodevirt-shim":                 func(s *Setup, _ *fake) { s.Programs = "/opt" },
		`has a runtime handler "vm" already`: func(_ *Setup, f *fake) { f.handlers = []string{"", "runc", "vm"} },
		"fields that there aren't": func(_ *Setup, f *fake) {
			put(t, f.dir, map[string]string{configPath: "[vm]\nmax_disk = \"1Ti\"\n"})
		},
		"not an absolute path": func(_ *Setup, f *fake) {
			put(t, f.dir, map[string]string{configPath: "listen = \"nodevirt.sock\"\n"})
		},
		"another installation": func(s *Setup, _ *fake) { _, _ = s.lock() },
		"the kubelet uses the CRI socket /run/other/c.sock, but the shim would use containerd at /run/containerd/containerd.sock": func(_ *Setup, f *fake) {
			path := filepath.Join(f.dir, f.kubeletFile)
			if err := os.WriteFile(path, []byte("KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///run/other/c.sock\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		s, f, _ := newNode(t, "kubeadm-debian")
		prepare(s, f)
		if err := s.Install(t.Context(), false); err == nil || !strings.Contains(err.Error(), want) || f.calls > 0 {
			t.Errorf("%d changes, error %v, not %q", f.calls, err, want)
		}
	}
}
