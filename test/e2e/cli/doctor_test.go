package cli

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
)

type finding struct{ Check, Level, Detail, Remedy string }

func TestDoctor(t *testing.T) {
	u := newUser(t)
	file := filepath.Join(u.n.Dir(), "etc", "nodevirt-shim.toml")
	doctor := func(env ...string) (map[string]finding, result) {
		t.Helper()
		r := u.tryWith(env, "doctor", "--config", file, "-o", "json")
		found := map[string]finding{}
		for _, f := range decode[[]finding](t, r.out) {
			found[f.Check] = f
		}
		return found, r
	}
	found, r := doctor()
	for name, f := range found {
		// Where KVM works it is ok; elsewhere guests are slow.
		if f.Level != "ok" && (name != "accelerator" || f.Level != "warning" || f.Remedy == "") {
			t.Errorf("on a sound node: %+v", f)
		}
	}
	if r.code != 0 || len(found) < 16 {
		t.Errorf("exit code %d after %d checks", r.code, len(found))
	}
	if table := u.try("doctor", "--config", file); table.code != 0 || !strings.Contains(table.out, "VMs can start on this node") {
		t.Errorf("the table is %+v", table)
	}

	// A node without most programs.
	found, r = doctor("PATH=" + t.TempDir())
	for _, name := range []string{"dnsmasq", "qemu-img", "nft"} {
		if f := found[name]; f.Level != "fail" || !strings.Contains(f.Remedy, "install") {
			t.Errorf("without it: %+v", f)
		}
	}
	if r.code != 1 {
		t.Errorf("without programs the exit code is %d", r.code)
	}

	for _, daemon := range []struct{ component, check string }{{node.Libvirtd, "libvirtd"}, {node.Shim, "shim"}} {
		if err := u.n.Kill(t.Context(), daemon.component, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		found, r = doctor()
		if f := found[daemon.check]; f.Level != "fail" || !strings.Contains(f.Remedy, "systemctl enable --now") || r.code != 1 {
			t.Errorf("without %s: %+v, exit code %d", daemon.component, f, r.code)
		}
		if err := u.n.Resume(t.Context(), daemon.component); err != nil {
			t.Fatal(err)
		}
	}
	if table := u.try("doctor", "--config", "/no/file"); table.code != 1 || !strings.Contains(table.err, "/no/file") {
		t.Errorf("without its config: %+v", table)
	}
}
