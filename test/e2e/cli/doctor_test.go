package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
	if r.code != 0 || len(found) < 17 {
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
		assert.NilError(t, u.n.Kill(t.Context(), daemon.component, syscall.SIGKILL))
		found, r = doctor()
		if f := found[daemon.check]; f.Level != "fail" || !strings.Contains(f.Remedy, "systemctl enable --now") || r.code != 1 {
			t.Errorf("without %s: %+v, exit code %d", daemon.component, f, r.code)
		}
		assert.NilError(t, u.n.Resume(t.Context(), daemon.component))
	}

	// A domain that has been in its start for an hour.
	state := filepath.Join(u.n.Dir(), "run/libvirt/qemu/unborn.xml")
	text := `<domstatus reason='starting up' pid='0'><domain><name>unborn</name>` +
		`<metadata><vm xmlns='https://nodevirt.io/domain/1'/></metadata></domain></domstatus>`
	assert.NilError(t, os.WriteFile(state, []byte(text), 0o600))
	then := time.Now().Add(-time.Hour)
	assert.NilError(t, os.Chtimes(state, then, then))
	found, _ = doctor()
	if f := found["libvirtd's restart"]; f.Level != "warning" || !strings.Contains(f.Detail, "unborn") ||
		!strings.Contains(f.Remedy, "nodevirt-shim -before-libvirtd") {
		t.Errorf("with a domain stuck in its start: %+v", f)
	}
	assert.NilError(t, u.n.Restart(t.Context(), node.Libvirtd))
	if found, _ = doctor(); found["libvirtd's restart"].Level != "ok" {
		t.Errorf("after libvirtd's restart: %+v", found["libvirtd's restart"])
	}

	if table := u.try("doctor", "--config", "/no/file"); table.code != 1 || !strings.Contains(table.err, "/no/file") {
		t.Errorf("without its config: %+v", table)
	}
}
