//go:build slow

package networks

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// pluginsVMI has a card of each kind of network binding plug-in. Their networks have no addresses of CNI's.
const pluginsVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [
			{"name": "default", "masquerade": {}},
			{"name": "tap", "binding": {"name": "tapped"}, "macAddress": "02:00:00:00:00:71"},
			{"name": "macvtap", "binding": {"name": "tapped"}},
			{"name": "veth", "binding": {"name": "managed"}}
		]
	}},
	"networks": [
		{"name": "default", "pod": {}}, {"name": "tap", "multus": {"networkName": "tap"}},
		{"name": "macvtap", "multus": {"networkName": "macvtap"}}, {"name": "veth", "multus": {"networkName": "veth"}}
	],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}]
}`

// pluginSubnet is what the DHCP server on pluginBridge has.
func pluginSubnet(i int) string { return fmt.Sprintf("10.98.%d.", 4+i) }

// TestNetworkBindingPlugins: a guest reaches its networks over a tap and a macvtap that a CNI plug-in made in the pod,
// and over an interface that the shim connects, and has its addresses from the networks' DHCP server.
func TestNetworkBindingPlugins(t *testing.T) {
	ctx, n := t.Context(), shared
	disk, err := guest.Tiny(ctx, n.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err := n.Push(ctx, "plugins:1", image)
	assert.NilError(t, err)
	p := n.NewPod("plugins")
	p["annotations"] = map[string]string{
		"nodevirt.io/vmi":              pluginsVMI,
		"nodevirt.io/network-bindings": `{"tapped": {"domainAttachmentType": "tap"}, "managed": {"domainAttachmentType": "managedTap"}}`,
	}
	p["linux"].(map[string]any)["overhead"] = map[string]any{"memory_limit_in_bytes": 256 * mebibyte}
	id, err := n.RunPod(ctx, p, "vm")
	assert.NilError(t, err)
	servePlugins(t, n)       // on the bridges, which the first pod brings
	for attempt := range 2 { // the devices stay for the next container
		c := node.NewContainer("guest", ref)
		c["metadata"].(map[string]any)["attempt"] = attempt
		c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 128 * mebibyte}}
		vm, err := n.CreateContainer(ctx, id, p, c)
		assert.NilError(t, err)
		if _, err := n.Crictl(ctx, "start", vm); err != nil {
			t.Fatal(err)
		}
		url, _ := podURL(t, n, id)
		got := cards(t, n, url)
		if len(got) != 4 || got[1].MAC != "02:00:00:00:00:71" {
			t.Fatalf("cards %+v", got)
		}
		for i, card := range got[1:] {
			at := slices.IndexFunc(card.Addresses, func(a string) bool { return strings.HasPrefix(a, pluginSubnet(i)) })
			if at < 0 {
				t.Errorf("card %d has the addresses %v, want one of %s0/24", i+1, card.Addresses, pluginSubnet(i))
				continue
			}
			address, _, _ := strings.Cut(card.Addresses[at], "/")
			if page := fetch(t, n, "http://"+address+"/"); !strings.HasPrefix(page, "ip=") {
				t.Errorf("at %s the guest says %q", address, page)
			}
		}
		if attempt == 0 {
			unplugs(t, n, vm, url, "1 1 1 1", "1 0 0 0", "tap", "macvtap", "veth")
		}
		for _, args := range [][]string{{"stop", "--timeout", "60", vm}, {"rm", vm}} {
			if _, err := n.Crictl(ctx, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	assert.NilError(t, n.RemovePod(ctx, id, p))
}

// servePlugins serves DHCP on the networks with plug-ins.
func servePlugins(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	args := []string{"--conf-file=/dev/null", "--no-daemon", "--user=root", "--port=0", "--bind-interfaces", "--leasefile-ro",
		"--dhcp-option=option:router"} // the default route is the first card's
	for i := range 3 {
		if _, err := n.Output(ctx, "ip", "address", "add", pluginSubnet(i)+"1/24", "dev", pluginBridge(i)); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--interface="+pluginBridge(i), fmt.Sprintf("--dhcp-range=%s10,%[1]s50,1h", pluginSubnet(i)))
	}
	var output bytes.Buffer
	server := n.Command(ctx, "dnsmasq", args...)
	server.Stdout, server.Stderr = &output, &output
	assert.NilError(t, server.Start())
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // it is killed
		if t.Failed() {
			t.Logf("the DHCP server: %s", &output)
		}
	})
}
