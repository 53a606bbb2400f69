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

// TestPluggedCards: a running VM gets network cards by its template, migrates with one, and loses one again. It needs
// no restart for that, and nothing of a card that is gone is left.
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
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	const boot = "cat /proc/sys/kernel/random/boot_id"
	before, node := inGuest(t, name, boot), vmiField(t, name, ".status.nodeName")
	add := func(card, network string) {
		t.Helper()
		kubectl(t, "patch", "vm", name, "--type=json", "-p", fmt.Sprintf(`[
			{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/-", "value": {"name": %q, "bridge": {}}},
			{"op": "add", "path": "/spec/template/spec/networks/-", "value": {"name": %q, "multus": {"networkName": %q}}}]`, card, card, network))
		wait.Until(t, "the card "+card, func() bool {
			return vmiField(t, name, fmt.Sprintf(".status.interfaces[?(@.name==%q)].interfaceName", card)) != ""
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
	assert.Equal(t, vmiField(t, name, `.status.interfaces[?(@.name=="late")].infoSource`), "domain, guest-agent, multus-status")
	inGuest(t, name, "ip link set eth1 up; ip addr add 10.97.6.9/24 dev eth1")
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

	add("more", "lan-two")
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "--field-selector=spec.nodeName="+now, "-o", "jsonpath={.items[*].metadata.name}")
	cards := func() string { return kubectl(t, "exec", pod, "--", "sh", "-c", "ls /sys/class/net") }
	assert.Assert(t, strings.Contains(cards(), "eth2"), cards())
	kubectl(t, "patch", "vm", name, "--type=json", "-p", `[{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/2/state", "value": "absent"}]`)
	wait.Until(t, "no card more anywhere", func() bool {
		template := kubectl(t, "get", "vm", name, "-o", "jsonpath={.spec.template.spec.networks[*].name}")
		return vmiField(t, name, ".spec.networks[*].name") == "default late" && template == "default late" &&
			vmiField(t, name, ".status.interfaces[*].name") == "default late" && !strings.Contains(attachments(), "hp-card-more")
	})
	assert.Assert(t, !strings.Contains(cards(), "eth2"), cards())
	assert.Equal(t, restart(), "")
	if after := kubectl(t, "exec", pod, "--", "sh", "-c", boot); after != before {
		t.Error("the guest has booted again")
	}
	kubectl(t, "patch", "vm", name, "--type=json", "-p", `[{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/1/state", "value": "absent"}]`)
	wait.Until(t, "a restart is required for a card of the pod", func() bool { return restart() == "True" })
}
