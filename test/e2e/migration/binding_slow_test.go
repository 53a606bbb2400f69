//go:build slow

package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/test/bindingplugin"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// pluginVMI has a card on a tap and one on a macvtap that a CNI plug-in makes in the pod.
const pluginVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [
			{"name": "default", "masquerade": {}},
			{"name": "tap", "binding": {"name": "tapped"}, "macAddress": "02:00:00:00:00:81"},
			{"name": "macvtap", "binding": {"name": "tapped"}, "macAddress": "02:00:00:00:00:82"}
		]
	}},
	"networks": [
		{"name": "default", "pod": {}}, {"name": "tap", "multus": {"networkName": "tap"}},
		{"name": "macvtap", "multus": {"networkName": "macvtap"}}
	],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]
}`

// lan is a network that both nodes are on: a bridge on each, joined by a cable.
type lan struct {
	mode, bridge, subnet string
	card                 string // the guest's
}

func lans() []lan {
	return []lan{
		{"tap", "lan1", "10.95.1.", "eth1"},
		{"macvtap", "lan2", "10.95.2.", "eth2"},
	}
}

// TestNetworkBindingPlugins moves a guest whose cards are a tap and a macvtap of network binding plug-ins to another
// node and back. Both nodes reach the same guest over both cards each time, and after a move that was cancelled.
func TestNetworkBindingPlugins(t *testing.T) {
	folder := t.TempDir()
	assert.NilError(t, bindingplugin.Link(folder))
	a, b := newNodesWith(t, node.Options{CNI: func(list map[string]any) {
		var delegates []any
		for i, l := range lans() {
			network := bindingplugin.Network(l.mode, l.mode, l.bridge)
			if l.mode == "macvtap" { // it gets no frames for another address
				network.MAC = fmt.Sprintf("02:00:00:00:00:8%d", i+1)
			}
			delegates = append(delegates, network)
		}
		bindingplugin.Multus(list, folder, delegates...)
	}})
	for i, m := range []*machine{a, b} {
		m.vmi = pluginVMI
		m.annotations = map[string]string{"nodevirt.io/network-bindings": `{"tapped": {"domainAttachmentType": "tap"}}`}
		for _, l := range lans() {
			inNode(t, m, "ip", "link", "add", l.bridge, "type", "bridge")
			inNode(t, m, "ip", "addr", "add", fmt.Sprintf("%s%d/24", l.subnet, i+1), "dev", l.bridge)
			inNode(t, m, "ip", "link", "set", l.bridge, "up")
		}
	}
	for _, l := range lans() {
		wire := "wire-" + l.bridge
		cable(t, a, b, wire)
		for _, m := range []*machine{a, b} {
			inNode(t, m, "ip", "link", "set", wire, "master", l.bridge, "up")
		}
	}

	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	for _, l := range lans() {
		first.sh(fmt.Sprintf("ip addr add %s9/24 dev %s", l.subnet, l.card))
	}
	boot := first.sh("cat /proc/sys/kernel/random/boot_id")
	reached := func(when string) {
		t.Helper()
		for i, m := range []*machine{a, b} {
			for _, l := range lans() {
				wait.Success(t, fmt.Sprintf("%s node %d reaches the guest over its %s", when, i, l.mode), func(ctx context.Context) error {
					text, err := m.Fetch(ctx, http.MethodGet, "http://"+l.subnet+"9/cgi-bin/info", "")
					if err != nil {
						return err
					}
					var info struct{ BootID string }
					if err := json.Unmarshal([]byte(text), &info); err != nil {
						return fmt.Errorf("%w in %s", err, text)
					}
					assert.Equal(t, info.BootID, boot, when)
					return nil
				})
			}
		}
	}
	reached("before it moves,")

	migration, target := begin(t, first, b, "cancelled", 1<<20)
	wait.Until(t, "it copies", func() bool {
		var r order.Report
		first.control(order.Status, migration, &r)
		return r.Processed > 1<<20
	})
	first.control(order.Cancel, migration, nil)
	if r := first.over(migration.Migration); r.State != string(handover.Kept) {
		t.Errorf("the source reports %+v", r)
	}
	target.ended()
	target.remove()
	reached("after a move that was cancelled,")

	second := move(t, first, b, "second")
	second.answers()
	reached("after a move,")
	third := move(t, second, a, "third")
	third.answers()
	reached("after a move back,")
	third.remove()
}
