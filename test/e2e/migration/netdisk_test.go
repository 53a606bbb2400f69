package migration

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const withNetworkDisk = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
}`

// The account of the iSCSI target, and the target.
const sanUser, sanPassword, sanTarget = "guests", "p%w@rd-never-seen", "iqn.2026-11.com.example:moved"

// serveISCSI has a node serve a blank disk at a portal, to initiators with the account.
func serveISCSI(t *testing.T, m *machine, portal string) {
	t.Helper()
	const socket = "TGT_IPC_SOCKET=/run/nodevirt-tgtd/moved"
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	daemon := m.Command(ctx, "env", socket, "tgtd", "-f", "-t", "1", "--iscsi", "portal="+portal)
	assert.NilError(t, daemon.Start())
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait() // it was killed
	})
	adm := func(args ...string) error {
		_, err := m.Output(t.Context(), "env", append([]string{socket, "tgtadm", "--lld", "iscsi", "--mode"}, args...)...)
		return err
	}
	wait.Until(t, "the server answers", func() bool { return adm("sys", "--op", "show") == nil })
	disk := filepath.Join(t.TempDir(), "disk.raw")
	assert.NilError(t, os.WriteFile(disk, nil, 0o600))
	assert.NilError(t, os.Truncate(disk, 64<<20))
	for _, args := range []string{
		"account --op new --user " + sanUser + " --password " + sanPassword,
		"target --op new --tid 1 --targetname " + sanTarget,
		"logicalunit --op new --tid 1 --lun 2 --backing-store " + disk,
		"target --op bind --tid 1 --initiator-address ALL",
		"account --op bind --tid 1 --user " + sanUser,
	} {
		assert.NilError(t, adm(strings.Fields(args)...))
	}
}

// TestNetworkDisk: a guest keeps a disk over iSCSI, which QEMU opens itself with an account.
func TestNetworkDisk(t *testing.T) {
	a, b := newNodesWith(t, withNetworkDisks())
	const portal = firstAddress + ":3270"
	serveISCSI(t, a, portal)
	keepsNetworkDisk(t, a, b,
		vmspec.NetworkDisk{ISCSI: &vmspec.ISCSIVolume{Portals: []string{portal}, Target: sanTarget, LUN: 2}},
		map[string]string{"node.session.auth.username": sanUser, "node.session.auth.password": sanPassword})
}

// withNetworkDisks are nodes whose VMs may have network disks, RBD images in some networks.
func withNetworkDisks(cephNetworks ...string) node.Options {
	return node.Options{ShimConfig: func(c map[string]any) {
		disks := map[string]any{"network": true}
		if cephNetworks != nil {
			disks["ceph_networks"] = cephNetworks
		}
		c["disks"] = disks
	}}
}

// keepsNetworkDisk moves a guest with a network disk of 64 MiB, which is blank, to another node and back. What
// it wrote is there, and the node that it has left keeps no secret of it. The files are those of the disk's
// Secret.
func keepsNetworkDisk(t *testing.T, a, b *machine, disk vmspec.NetworkDisk, files map[string]string) {
	t.Helper()
	disk.PVC, disk.Volume, disk.SecretName, disk.SecretMount = "data", "pv-data", "login", "data-login"
	disks, err := json.Marshal(map[string]vmspec.NetworkDisk{"data": disk})
	assert.NilError(t, err)
	secret := filepath.Join(t.TempDir(), "volumes", "kubernetes.io~secret", disk.SecretMount) // as a kubelet has it
	assert.NilError(t, os.MkdirAll(filepath.Join(secret, "..1"), 0o700))
	assert.NilError(t, os.Symlink("..1", filepath.Join(secret, "..data")))
	for file, text := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(secret, "..1", file), []byte(text), 0o600))
	}
	for _, m := range []*machine{a, b} {
		m.vmi = withNetworkDisk
		m.annotations = map[string]string{vmspec.AnnotationVMContainer: "guest", vmspec.AnnotationNetworkDisks: string(disks)}
		m.mounts = []any{map[string]any{"container_path": "/volumes/" + disk.SecretMount, "host_path": secret, "readonly": true}}
	}
	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	boot := first.sh("cat /proc/sys/kernel/random/boot_id")
	const fill = "dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null"
	first.sh(fill)
	first.sh("(i=0; while :; do echo $((i += 1)) >/tmp/count; sleep 0.2; done) >/dev/null 2>&1 &")
	const read = "sha256sum </tmp/r; blockdev --flushbufs /dev/vdb; dd if=/dev/vdb bs=64k skip=100 count=64 2>/dev/null | sha256sum"
	content := first.sh(read)

	second := move(t, first, b, "second")
	check(t, second, boot, content, read)
	keepsNoSecret(t, a, first.id)
	second.sh(fill)
	content = second.sh(read)
	if sums := strings.Fields(content); len(sums) != 4 || sums[0] != sums[2] {
		t.Errorf("the memory and the disk have %v", sums)
	}
	third := move(t, second, a, "third")
	check(t, third, boot, content, read)
	keepsNoSecret(t, b, second.id)
	third.stop()
	third.remove()
	keepsNoSecret(t, a, third.id)
}

// keepsNoSecret checks that libvirtd has no secret of a container.
func keepsNoSecret(t *testing.T, m *machine, id string) {
	t.Helper()
	has, err := m.Output(t.Context(), "virsh", "secret-list")
	assert.NilError(t, err)
	if strings.Contains(has, id) {
		t.Errorf("libvirtd has\n%s", has)
	}
}
