package migration

import (
	"bufio"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const bridgedVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "bridge": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]
}`

// flat has CNI give each VM's pod the same addresses, on a bridge that both nodes share.
func flat(address string) func(list map[string]any) {
	return func(list map[string]any) {
		list["plugins"] = []map[string]any{
			{
				"type": "bridge", "bridge": "cni0", "mtu": 1400, "hairpinMode": true,
				"ipam": map[string]any{"type": "static", "addresses": []map[string]any{{"address": address}}},
			},
			{"type": "tuning", "mac": "02:00:00:00:00:42"},
		}
	}
}

// TestPodAddress moves a guest with its pod's address to a pod with the same one. Its connections live
// on, and neither pod answers in its place. A pod with another address is refused.
func TestPodAddress(t *testing.T) {
	const address = "10.78.1.5"
	newFlat := func(address, own string) *machine {
		m := newNode(t, node.Options{Subnet: netip.MustParsePrefix("10.78.1.0/24"), CNI: flat(address + "/24")})
		m.vmi, m.address = bridgedVMI, netip.MustParseAddr(own)
		m.annotations = map[string]string{
			kubevirt.AllowPodBridgeNetworkLiveMigrationAnnotation: "",
			kubevirt.IgnitionAnnotation:                           "{}", // each node has its file
		}
		inNode(t, m, "ip", "link", "add", "cni0", "type", "bridge")
		inNode(t, m, "ip", "addr", "add", own+"/24", "dev", "cni0")
		inNode(t, m, "ip", "link", "set", "cni0", "up")
		m.push(t)
		return m
	}
	a, b, other := newFlat(address, "10.78.1.1"), newFlat(address, "10.78.1.2"), newFlat("10.78.1.6", "10.78.1.3")
	cable(t, a, b, "cable")
	for _, m := range []*machine{a, b} {
		inNode(t, m, "ip", "link", "set", "cable", "master", "cni0", "up")
	}

	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	l, err := a.Listen(t.Context(), "tcp", "10.78.1.1:7000")
	assert.NilError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	first.sh("{ (i=0; while :; do echo $((i += 1)); sleep 0.1; done) | nc 10.78.1.1 7000; } >/dev/null 2>&1 &")
	conn, err := l.Accept()
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	lines, last := bufio.NewScanner(conn), 0
	lives := func(when string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		for until := time.Now().Add(time.Second); time.Now().Before(until); {
			if !lines.Scan() || lines.Text() != fmt.Sprint(last+1) {
				t.Fatalf("%s the guest's connection has %q after %d: %v", when, lines.Text(), last, lines.Err())
			}
			last++
		}
	}
	lives("before the move")

	elsewhere := order.Migration{Migration: "another-address"}
	var source order.Identity
	first.control(order.Identify, elsewhere, &source)
	refused := other.pod(t, "refused", elsewhere.Migration)
	refused.start()
	err = refused.try(order.Receive, order.Reception{Migration: elsewhere, Source: source.Fingerprint, Guest: source.Guest, Node: other.address}, nil)
	if err == nil || !strings.Contains(err.Error(), "its network must give the same MAC and IP addresses to both pods") {
		t.Errorf("a pod with another address: %v", err)
	}

	resolve := func() { // who answers for the guest's address is asked again
		inNode(t, a, "ip", "neigh", "flush", "all")
		inNode(t, b, "ip", "neigh", "flush", "all")
	}
	// The target's pod has the guest's addresses from the moment when it is made. None of its frames may lead others
	// to it.
	inNode(t, a, "nft", "add table bridge twins; add chain bridge twins in { type filter hook prerouting priority 0; }; "+
		"add rule bridge twins in iifname cable ether saddr 02:00:00:00:00:42 counter")
	b.attach = func(t *testing.T, _ *vm) map[string]string {
		t.Helper()
		counted, err := a.Output(t.Context(), "nft", "list", "table", "bridge", "twins")
		assert.NilError(t, err)
		if !strings.Contains(counted, "counter packets 0 ") {
			t.Errorf("the target's pod has sent frames before the guest came:\n%s", counted)
		}
		return nil
	}
	migration, second := begin(t, first, b, "second", 0)
	resolve()
	first.ended()
	if r := second.over(migration.Migration); r.State != "taken" {
		t.Errorf("the target reports %+v", r)
	}
	resolve()
	lives("after the move")
	second.answers()
	first.remove()
	resolve()
	lives("without the source's pod")
	wait.Until(t, "the other node reaches the guest", func() bool {
		_, err := b.Fetch(t.Context(), "GET", "http://"+address+"/cgi-bin/info", "")
		return err == nil
	})
}
