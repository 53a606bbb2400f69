//go:build cluster && examples

package cluster

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/wait"
)

// cni has Multus make the pods' networks, since KubeVirt's examples ask for them.
func cni() func(map[string]any, string) { return cluster.Multus }

// ptp is the network that KubeVirt's examples are on.
const ptp = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: ptp-conf}
spec:
  config: |
    {"cniVersion": "0.4.0", "name": "ptp", "type": "ptp", "mtu": 1400,
     "ipam": {"type": "host-local", "subnet": "10.250.0.0/24", "dataDir": "/var/lib/cni/networks"}}
`

// withNetworks makes the network that the examples name.
func withNetworks(t *testing.T) {
	t.Helper()
	assert.NilError(t, suite.Apply(t.Context(), cluster.MultusManifest))
	assert.NilError(t, suite.WaitFor(t.Context(), "crd/network-attachment-definitions.k8s.cni.cncf.io", "condition=Established"))
	assert.NilError(t, suite.Apply(t.Context(), ptp))
}

// A VMI's default network of Multus takes the place of the pod's own: the guest has its address. The name
// is one of the VMI's namespace.
func TestADefaultNetworkIsThePods(t *testing.T) {
	withNetworks(t)
	name := made(t, strangersVMI("on-default-network", func(spec, _, devices object) {
		devices["interfaces"] = []object{{"name": "default", "bridge": object{}}}
		spec["networks"] = []object{{"name": "default", "multus": object{"networkName": "ptp-conf", "default": true}}}
	}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	assert.NilError(t, says(t.Context(), name, "ip=10.250.0."))
	address := vmiField(t, name, ".status.interfaces[0].ipAddress")
	assert.Assert(t, strings.HasPrefix(address, "10.250.0."), address)
	assert.Equal(t, vmiField(t, name, ".status.interfaces[*].name"), "default")
}

// bridges are two networks without addresses, each on a bridge of its node.
const bridges = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan-one}
spec: {config: '{"cniVersion": "0.4.0", "name": "lan-one", "type": "bridge", "bridge": "lan1", "ipam": {}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan-two}
spec: {config: '{"cniVersion": "0.4.0", "name": "lan-two", "type": "bridge", "bridge": "lan2", "ipam": {}}'}
`

// TestAnotherNetworkByMigration: an edit of a running VM names another network for one of its cards. The VM migrates by
// itself, and its guest goes on, on that network.
func TestAnotherNetworkByMigration(t *testing.T) {
	withNetworks(t)
	assert.NilError(t, suite.Apply(t.Context(), bridges))
	updates := func(ctx context.Context, methods string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			`--patch={"spec": {"workloadUpdateStrategy": `+methods+`}}`)
		return err
	}
	assert.NilError(t, updates(t.Context(), `{"workloadUpdateMethods": ["LiveMigrate"]}`))
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "vmim", "--all") // the controller's
		return errors.Join(err, updates(ctx, "null"))
	})
	name := made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "renetworked"},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}}, {"name": "lan", "bridge": object{}, "macAddress": "02:00:00:00:00:92"}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}, {"name": "lan", "multus": object{"networkName": "lan-one"}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	const boot = "cat /proc/sys/kernel/random/boot_id"
	inGuest(t, name, "ip link set eth1 up; ip addr add 10.97.5.9/24 dev eth1")
	before, node := inGuest(t, name, boot), vmiField(t, name, ".status.nodeName")
	reaches := func(node, bridge string) {
		t.Helper()
		n := suite.Node(node)
		_, err := n.Output(t.Context(), "ip", "addr", "replace", "10.97.5.1/24", "dev", bridge)
		assert.NilError(t, err)
		wait.Success(t, "the guest by "+bridge, func(ctx context.Context) error {
			_, err := n.Fetch(ctx, http.MethodGet, "http://10.97.5.9/", "")
			return err
		})
		_, err = n.Output(t.Context(), "ip", "addr", "del", "10.97.5.1/24", "dev", bridge)
		assert.NilError(t, err)
	}
	reaches(node, "lan1")
	kubectl(t, "patch", "vm", name, "--type=json", "-p", `[{"op": "replace", "path": "/spec/template/spec/networks/1/multus/networkName", "value": "lan-two"}]`)
	wait.Until(t, "the VM is on the other node", func() bool {
		now := vmiField(t, name, ".status.nodeName")
		return now != "" && now != node && vmiField(t, name, `.status.conditions[?(@.type=="MigrationRequired")].status`) == ""
	})
	now := vmiField(t, name, ".status.nodeName")
	reaches(now, "lan2")
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "--field-selector=spec.nodeName="+now, "-o", "jsonpath={.items[*].metadata.name}")
	if after := kubectl(t, "exec", pod, "--", "sh", "-c", boot); after != before {
		t.Error("the guest has booted again")
	}
	assert.Equal(t, kubectl(t, "get", "vmim", "-o", `jsonpath={.items[?(@.spec.vmiName=="`+name+`")].status.phase}`), "Succeeded")
	assert.Equal(t, kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].status}`), "")
}
