//go:build cluster && examples

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestPluggedCards: a running VM gets network cards by its template, migrates with one, and loses them again, also those
// that it started with, and those that moved with it. It needs no restart and no further migration for that, and
// nothing of a card that is gone is left.
func TestPluggedCards(t *testing.T) {
	withNetworks(t)
	assert.NilError(t, suite.Apply(t.Context(), bridges))
	undo(t, func(ctx context.Context) error { // CNI's plug-in leaves its bridges
		for _, n := range suite.Nodes() {
			for _, bridge := range []string{"lan1", "lan2"} {
				_, _ = n.Output(ctx, "ip", "link", "del", bridge) // a node may have none
			}
		}
		return nil
	})
	name := made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "carded"},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}}, {"name": "own", "bridge": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}, {"name": "own", "multus": object{"networkName": "lan-two"}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	const boot = "cat /proc/sys/kernel/random/boot_id"
	before, node := inGuest(t, name, boot), vmiField(t, name, ".status.nodeName")
	reports := func(card, field string) string {
		t.Helper()
		return vmiField(t, name, fmt.Sprintf(".status.interfaces[?(@.name==%q)].%s", card, field))
	}
	const mac = "02:00:00:00:61:09"
	add := func(card, network string) {
		t.Helper()
		kubectl(t, "patch", "vm", name, "--type=json", "-p", fmt.Sprintf(`[
			{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/-", "value": {"name": %q, "bridge": {}, "macAddress": %q}},
			{"op": "add", "path": "/spec/template/spec/networks/-", "value": {"name": %q, "multus": {"networkName": %q}}}]`, card, mac, card, network))
		wait.Until(t, "the card "+card, func() bool { return reports(card, "interfaceName") != "" })
		assert.Equal(t, reports(card, "mac"), mac)
	}
	remove := func(card string, at int, left string) {
		t.Helper()
		kubectl(t, "patch", "vm", name, "--type=json", "-p", fmt.Sprintf(`[{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/%d/state", "value": "absent"}]`, at))
		wait.Until(t, "no card "+card+" anywhere", func() bool {
			return vmiField(t, name, ".spec.networks[*].name") == left && vmiField(t, name, ".status.interfaces[*].name") == left &&
				kubectl(t, "get", "vm", name, "-o", "jsonpath={.spec.template.spec.networks[*].name}") == left
		})
	}
	reaches := func(node, address string) {
		t.Helper()
		n := suite.Node(node)
		_, err := n.Output(t.Context(), "ip", "addr", "replace", "10.97.6.1/24", "dev", "lan1")
		assert.NilError(t, err)
		wait.Success(t, "the guest by lan1", func(ctx context.Context) error {
			_, err := n.Fetch(ctx, http.MethodGet, "http://"+address+"/", "")
			return err
		})
		_, err = n.Output(t.Context(), "ip", "addr", "del", "10.97.6.1/24", "dev", "lan1")
		assert.NilError(t, err)
	}
	restart := func() string {
		return kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].status}`)
	}
	attachments := func() string {
		return kubectl(t, "get", "pods", "-l", "kubevirt.io=hotplug-disk", "-o", "name")
	}
	add("late", "lan-one")
	for _, card := range []string{"own", "late"} {
		assert.Equal(t, reports(card, "infoSource"), "domain, guest-agent, multus-status")
	}
	inGuest(t, name, "ip link set eth2 up; ip addr add 10.97.6.9/24 dev eth2")
	reaches(node, "10.97.6.9")
	assert.Equal(t, restart(), "")

	made(t, object{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": object{"name": name}, "spec": object{"vmiName": name}})
	wait.Until(t, "the end of the migration", func() bool {
		phase := kubectl(t, "get", "vmim", name, "-o", "jsonpath={.status.phase}")
		return phase == "Succeeded" || phase == "Failed"
	})
	now := vmiField(t, name, ".status.nodeName")
	assert.Assert(t, now != node, vmiField(t, name, ".status.migrationState.failureReason"))
	reaches(now, "10.97.6.9")
	wait.Until(t, "no attachment pod of the source", func() bool { return !strings.Contains(attachments(), "hp-card-late") })

	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "--field-selector=spec.nodeName="+now, "-o", "jsonpath={.items[*].metadata.name}")
	cards := func() string {
		return strings.Join(strings.Fields(kubectl(t, "exec", pod, "--", "sh", "-c", "cd /sys/class/net; ls -d eth*")), " ")
	}
	remove("own", 1, "default late") // with which it started
	assert.Equal(t, cards(), "eth0 eth2")
	assert.Equal(t, reports("late", "podInterfaceName"), "net2")
	reaches(now, "10.97.6.9")
	remove("late", 1, "default") // which came with the guest
	assert.Equal(t, cards(), "eth0")

	add("late", "lan-one") // and again
	inGuest(t, name, "ip link set eth1 up; ip addr add 10.97.6.9/24 dev eth1")
	reaches(now, "10.97.6.9")
	remove("late", 1, "default")
	wait.Until(t, "no attachment pod", func() bool { return !strings.Contains(attachments(), "hp-card-") })
	assert.Equal(t, cards(), "eth0")
	assert.Equal(t, restart(), "")
	assert.Equal(t, vmiField(t, name, `.status.conditions[?(@.type=="MigrationRequired")].status`), "")
	if after := kubectl(t, "exec", pod, "--", "sh", "-c", boot); after != before {
		t.Error("the guest has booted again")
	}
}
