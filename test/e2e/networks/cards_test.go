package networks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/bindingplugin"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const mebibyte = 1 << 20

// withMultus has Multus make the pod's networks: eth0 as before, but with jumbo frames, net1 by CNI's bridge,
// net2 by its macvlan, and net3 by a bridge that assigns no addresses. Those for network binding plug-ins are
// the tests' own plug-in's.
func withMultus(list map[string]any) {
	list["plugins"].([]map[string]any)[0]["mtu"] = 9000
	delegates := []any{
		map[string]any{"name": "net1", "type": "bridge", "bridge": "cni1", "mtu": 1280, "isGateway": true, "ipam": hostLocal("10.98.1.0/24")},
		map[string]any{"name": "net2", "type": "macvlan", "master": "cni1", "mtu": 1280, "ipam": hostLocal("10.98.2.0/24")},
		map[string]any{"name": "net3", "type": "bridge", "bridge": bootBridge, "ipam": map[string]any{}},
	}
	for _, d := range delegates {
		d.(map[string]any)["cniVersion"] = "0.4.0"
	}
	for i, mode := range []string{"tap", "macvtap", "veth"} {
		delegates = append(delegates, bindingplugin.Network(mode, mode, pluginBridge(i)))
	}
	bindingplugin.Multus(list, pluginDir, delegates...)
}

// pluginBridge is the node's bridge of a network with a plug-in.
func pluginBridge(i int) string { return fmt.Sprint("cni", 4+i) }

func hostLocal(subnet string) map[string]any {
	return map[string]any{"type": "host-local", "subnet": subnet, "dataDir": "/var/lib/cni/networks"}
}

const vmi = `{
	"domain": {
		"cpu": {"cores": 2},
		"devices": {
			"networkInterfaceMultiqueue": true,
			"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
			"interfaces": [
				{"name": "default", "masquerade": {}},
				{"name": "bridged", "bridge": {}, "macAddress": "02:00:00:00:00:51"},
				{"name": "lan", "bridge": {}}
			]
		}
	},
	"networks": [
		{"name": "default", "pod": {}},
		{"name": "bridged", "multus": {"networkName": "bridged"}},
		{"name": "lan", "multus": {"networkName": "lan"}}
	],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}]
}`

// card is what the guest says of one.
type card struct {
	Name, MAC   string
	MTU, Queues int
	Addresses   []string
}

func TestSeveralCards(t *testing.T) {
	ctx, n := t.Context(), shared
	disk, err := guest.Tiny(ctx, n.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err := n.Push(ctx, "tiny:1", image)
	assert.NilError(t, err)
	p := n.NewPod("cards")
	p["annotations"] = map[string]string{"nodevirt.io/vmi": vmi}
	p["linux"].(map[string]any)["overhead"] = map[string]any{"memory_limit_in_bytes": 256 * mebibyte}
	id, err := n.RunPod(ctx, p, "vm")
	assert.NilError(t, err)
	c := node.NewContainer("guest", ref)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 128 * mebibyte}}
	vm, err := n.CreateContainer(ctx, id, p, c)
	assert.NilError(t, err)
	if _, err := n.Crictl(ctx, "start", vm); err != nil {
		t.Fatal(err)
	}
	// All networks count their addresses alike.
	url, last := podURL(t, n, id)
	for round := range 2 {
		fetch(t, n, url)
		got := cards(t, n, url)
		if len(got) != 3 {
			t.Fatalf("cards %+v", got)
		}
		for i, want := range []struct {
			address     string
			mtu, queues int
		}{{"10.0.2.2/24", 9000, 2}, {"10.98.1." + last + "/24", 1280, 2}, {"10.98.2." + last + "/24", 1280, 2}} {
			if c := got[i]; !slices.Contains(c.Addresses, want.address) || c.MTU != want.mtu || c.Queues != want.queues {
				t.Errorf("boot %d: card %d is %+v, want %+v", round, i, c, want)
			}
		}
		if got[1].MAC != "02:00:00:00:00:51" {
			t.Errorf("MAC address of the second card is %s", got[1].MAC)
		}
		// Each card is on its own network.
		if page := fetch(t, n, "http://10.98.1."+last+"/"); !strings.HasPrefix(page, "ip=10.0.2.2") {
			t.Errorf("on its second network the guest says %q", page)
		}
		if round == 0 {
			before := boot(t, n, url)
			if _, err := n.Fetch(ctx, http.MethodPost, url+"cgi-bin/reboot", ""); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the guest to reboot", func() bool { return boot(t, n, url) != before })
		}
	}
	unplugs(t, n, vm, url, "1 1 1", "1 0 0", "bridged", "lan")
	assert.NilError(t, n.RemovePod(ctx, id, p))
}

// podURL returns the URL of a pod's web server, and the last part of the pod's address.
func podURL(t *testing.T, n *node.Node, id string) (url, last string) {
	t.Helper()
	ip, err := n.Crictl(t.Context(), "inspectp", "--output", "go-template", "--template", "{{.status.network.ip}}", id)
	assert.NilError(t, err)
	ip = strings.TrimSpace(ip)
	return "http://" + ip + "/", ip[strings.LastIndex(ip, ".")+1:]
}

func cards(t *testing.T, n *node.Node, url string) []card {
	t.Helper()
	var info struct{ Interfaces []card }
	wait.Until(t, "an address on each card", func() bool {
		text := fetch(t, n, url+"cgi-bin/info")
		assert.NilError(t, json.Unmarshal([]byte(text), &info), text)
		return !slices.ContainsFunc(info.Interfaces, func(c card) bool {
			return !slices.ContainsFunc(c.Addresses, func(a string) bool { return strings.HasPrefix(a, "10.") })
		})
	})
	return info.Interfaces
}

// boot is the identifier of the guest's boot.
func boot(t *testing.T, n *node.Node, url string) string {
	t.Helper()
	var info struct{ BootID string }
	text := fetch(t, n, url+"cgi-bin/info")
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return info.BootID
}

// fetch waits for the guest's answer.
func fetch(t *testing.T, n *node.Node, url string) string {
	t.Helper()
	var page string
	wait.Success(t, "the guest's answer", func(ctx context.Context) (err error) {
		page, err = n.Fetch(ctx, http.MethodGet, url, "")
		return err
	})
	return page
}
