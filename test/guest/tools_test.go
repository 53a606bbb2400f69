package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/internal/turns"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
)

// TestFedoraTools: the guest that plays Fedora has what tests run in it, from Debian's packages where it can.
func TestFedoraTools(t *testing.T) {
	needs.Parts(t, "QEMU, swtpm, a Debian mirror")
	disk, err := guest.TinyWithLogin(t.Context(), guest.Options{Log: os.Stderr}, guest.Fedora, true)
	assert.NilError(t, err)
	metrics := filepath.Join(t.TempDir(), "metrics")
	assert.NilError(t, vhostmd.Create(metrics))
	assert.NilError(t, vhostmd.Write(metrics, []vhostmd.Metric{vhostmd.Text("host", "HostName", "node-1")}))
	disks := append(drive(overlay(t, disk), "qcow2"), drive(metrics, "raw", "readonly=on")...)
	m := start(t, 256, append(disks, tpm(t)...)...)
	m.waitFor(`^nodevirt guest: up host=fedora`, 5*time.Minute)
	a := agent.New(agent.Options{Socket: m.agent, Large: turns.New("others", 1, 1)})
	a.Port.Report(agent.Present)
	for _, c := range []struct{ run, want string }{
		{"tpm2_createprimary -Q --hierarchy=o --key-context=prim.ctx && echo SECRET | " +
			"tpm2_create -Q --hash-algorithm=sha256 --public=seal.pub --private=seal.priv --sealing-input=- --parent-context=prim.ctx && " +
			"tpm2_load -Q --parent-context=prim.ctx --public=seal.pub --private=seal.priv --name=seal.name --key-context=seal.ctx && " +
			"tpm2_evictcontrol -Q --hierarchy=o --object-context=seal.ctx 0x81010002 && tpm2_unseal -Q --object-context=0x81010002", "SECRET\n"},
		{"tpm2_pcrextend 15:sha256=54d626e08c1c802b305dad30b7e54a82f102390cc92c7d4db112048935236e9c && tpm2_pcrread sha256:15",
			"0x1EE66777C372B96BC74AC4CB892E0879FA3CCF6A2F53DB1D00FD18B264797F49"},
		{"echo kept >message && tpm2_nvdefine -C o -s 5 1 && tpm2_nvwrite -C o -i message 1 && tpm2_nvread -s 5 -C o 1", "kept\n"},
		{"stress-ng --vm 1 --vm-bytes 100M --vm-keep --timeout 5 2>&1", "successful run completed"},
		{"dhclient -1 -r -d eth0 && dhclient -1 -sf /usr/bin/env --request-options routers,tftp-server-name eth0", "\nnew_routers=10.0.2.2\n"},
		{"ip link add dummy0 type dummy && ip link set dev dummy0 address 02:00:00:00:00:01 && ip link show dummy0", "02:00:00:00:00:01"},
		{"ip netns add other && ip link set dummy0 netns other && ip netns exec other ip link show dummy0", "02:00:00:00:00:01"},
		{"lsblk --nodeps -no name,serial", "vdb \n"},
		{"lsblk /dev/vda -o TYPE,NAME -np", "disk /dev/vda\n"},
		{"mokutil --sb-state || true", "EFI variables are not supported"},
		{"vm-dump-metrics", "<name>HostName</name>\n    <value>node-1</value>"},
	} {
		r, err := a.Commands.Exec(t.Context(), agent.Command{Args: []string{"bash", "-c", "cd /root; " + c.run}})
		if out := string(r.Stdout) + string(r.Stderr); err != nil || r.Code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d, %v\n%s\nwithout %q", c.run, r.Code, err, out, c.want)
		}
	}
}

// tpm starts swtpm for a machine, and returns qemu's arguments for it.
func tpm(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tpm-") // t.TempDir is too long for a socket's path
	assert.NilError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--ctrl", "type=unixio,path="+socket, "--flags", "startup-clear")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	assert.NilError(t, dial(t, socket).Close())
	return []string{"-chardev", "socket,id=tpm,path=" + socket, "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"}
}
