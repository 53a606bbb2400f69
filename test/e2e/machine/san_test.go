//go:build machine

package machine

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// openNetworkDisks lets VMs of the node have disks on the network, until the node's configuration is restored.
func openNetworkDisks(t *testing.T) {
	t.Helper()
	const config = "/etc/nodevirt/nodevirt-shim.toml"
	must(t, "cp -p "+config+" /root/shim.toml; sed -i 's/^network = false/network = true/' "+config+"; systemctl restart nodevirt-shim")
	t.Cleanup(func() {
		if _, err := run(context.WithoutCancel(t.Context()), "mv /root/shim.toml "+config+"; systemctl restart nodevirt-shim"); err != nil {
			t.Error(err)
		}
	})
}

// onNetwork starts a server of iSCSI disks outside the machine, until the end of the test, and returns what gives a pod
// its disk there.
func onNetwork(t *testing.T) func(*corev1.Pod) {
	t.Helper()
	const socket, target = "TGT_IPC_SOCKET=/run/san", "iqn.2026-11.com.example:machine"
	control, portal := suite.Control(), suite.ControlAddress()+":3270"
	output := func(command string, args ...string) {
		t.Helper()
		if _, err := control.Output(t.Context(), command, args...); err != nil {
			t.Fatal(err)
		}
	}
	from, err := guest.Tiny(t.Context(), control.GuestOptions())
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "disk.raw")
	output("qemu-img", "convert", "-O", "raw", from, disk)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	daemon := control.Command(ctx, "env", socket, "tgtd", "-f", "-t", "1", "--iscsi", "portal="+portal)
	if err := daemon.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait() // it was killed
	})
	adm := func(mode, op string) []string {
		return []string{socket, "tgtadm", "--lld", "iscsi", "--mode", mode, "--op", op}
	}
	wait.Success(t, "the server answers", func(ctx context.Context) error {
		_, err := control.Output(ctx, "env", adm("sys", "show")...)
		return err
	})
	output("env", append(adm("target", "new"), "--tid", "1", "--targetname", target)...)
	output("env", append(adm("logicalunit", "new"), "--tid", "1", "--lun", "1", "--backing-store", disk)...)
	output("env", append(adm("target", "bind"), "--tid", "1", "--initiator-address", "ALL")...)

	disks, err := json.Marshal(map[string]vmspec.NetworkDisk{"root": {
		PVC: "root", Volume: "pv-root", ISCSI: &vmspec.ISCSIVolume{Portals: []string{portal}, Target: target, LUN: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	spec := specified("", `"persistentVolumeClaim": {"claimName": "root"}`)
	return func(p *corev1.Pod) {
		spec(p)
		p.Annotations[vmspec.AnnotationNetworkDisks] = string(disks)
	}
}
