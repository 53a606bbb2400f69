//go:build cluster && slow

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// serveISCSI starts an iSCSI server on a node, beside the node's own tgtd, with the disk and the account
// of the example. It returns the server's address, which all nodes reach.
func serveISCSI(t *testing.T) (address string) {
	t.Helper()
	on := suite.Nodes()[0]
	address = kubectl(t, "get", "node", "node-1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	const socket = "TGT_IPC_SOCKET=/run/nodevirt-tgtd/san"
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	daemon := on.Command(ctx, "env", socket, "tgtd", "-f", "-t", "1", "--iscsi", "portal="+address+":3270")
	assert.NilError(t, daemon.Start())
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait() // it was killed
	})
	tgtadm := func(args ...string) error {
		_, err := on.Output(t.Context(), "env", append([]string{socket, "tgtadm", "--lld", "iscsi"}, args...)...)
		return err
	}
	wait.Success(t, "the iSCSI server", func(context.Context) error { return tgtadm("--mode", "sys", "--op", "show") })
	from, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	disk := filepath.Join(t.TempDir(), "disk.raw")
	_, err = on.Output(t.Context(), "qemu-img", "convert", "-O", "raw", from, disk)
	assert.NilError(t, err)
	for _, args := range [][]string{
		{"account", "new", "--user", "guests", "--password", "change-this-password"},
		{"target", "new", "--tid", "1", "--targetname", "iqn.2026-11.com.example:disks"},
		{"logicalunit", "new", "--tid", "1", "--lun", "2", "--backing-store", disk},
		{"account", "bind", "--tid", "1", "--user", "guests"},
		{"target", "bind", "--tid", "1", "--initiator-address", "ALL"},
	} {
		assert.NilError(t, tgtadm(append([]string{"--mode", args[0], "--op", args[1]}, args[2:]...)...))
	}
	return address
}

// TestTheExampleOfISCSI: a VM boots from the target that its PVC is bound to, and its pod mounts no PVC. A
// second VM waits, though its PVC is bound to another PersistentVolume, until the first has ended. It
// finds what the first one wrote.
func TestTheExampleOfISCSI(t *testing.T) {
	t.Parallel()
	address := serveISCSI(t)
	text, err := os.ReadFile(filepath.Join(examples(t), "iscsi.yaml"))
	assert.NilError(t, err)
	first := strings.NewReplacer("192.0.2.10:3260", address+":3270", "guest: 1Gi", "guest: 96Mi").Replace(string(text))
	second := strings.NewReplacer("name: iscsi\n", "name: iscsi-2\n", "Name: iscsi\n", "Name: iscsi-2\n", "name: iscsi-chap", "name: iscsi-chap-2").Replace(first)
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vm,vmi,pvc,pods")
			t.Log(about)
		}
		_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "vm/iscsi", "vm/iscsi-2", "pvc/iscsi", "pvc/iscsi-2",
			"pv/iscsi", "pv/iscsi-2", "secret/iscsi-chap", "secret/iscsi-chap-2")
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), first))
	ip := addressOf(t, "iscsi")
	pod := kubectl(t, "get", "pods", "--selector=vm.kubevirt.io/name=iscsi", "-o", "jsonpath={.items[0].metadata.name}")
	if mounts := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.spec.volumes[*].persistentVolumeClaim.claimName} {.spec.containers[0].volumeMounts[*].name}"); !strings.HasPrefix(mounts, "iscsi root-") {
		t.Errorf("the pod's PVCs and mounts are %q", mounts)
	}
	if xml := virsh(t, "dumpxml", pod); !strings.Contains(xml, "protocol='iscsi' name='iqn.2026-11.com.example:disks/2'") {
		t.Errorf("the domain is\n%s", xml)
	}
	wait.Success(t, "the guest's file", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "exec", shell, "--", "wget", "-q", "-O", "-", "--post-data=kept", "http://"+ip+"/cgi-bin/disk")
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), second))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/iscsi-2", `jsonpath={.status.conditions[?(@.type=="Synchronized")].reason}=PVCInUse`))
	kubectl(t, "delete", "vm", "iscsi")
	ip = addressOf(t, "iscsi-2")
	asked(t, ip, "/cgi-bin/disk", "kept")
	kubectl(t, "delete", "vm", "iscsi-2")
}
