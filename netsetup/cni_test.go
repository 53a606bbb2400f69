package netsetup

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// CNI's ptp takes the subnet's route off the link: neighbours are behind the gateway.
func TestPointToPointNetwork(t *testing.T) {
	n := newNode(t)
	n.conf = map[string]any{
		"cniVersion": "0.4.0", "name": "ptpnet", "type": "ptp", "mtu": 1450,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": t.TempDir(), "subnet": "10.89.0.0/24",
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}
	podA, podB := n.addPod(t), n.addPod(t)
	before := state(t, podA)
	a, b := n.start(t, idA, Pod{Netns: podA}), n.start(t, idB, Pod{Netns: podB})
	gateway := netip.MustParseAddr("10.89.0.1")
	want := lease{
		address: netip.MustParsePrefix("10.89.0.2/32"), router: gateway,
		routes: []Route{
			{Destination: netip.MustParsePrefix("10.89.0.1/32")},
			{netip.MustParsePrefix("10.89.0.0/24"), gateway},
			{netip.MustParsePrefix("0.0.0.0/0"), gateway},
		},
		mtu: 1450, seconds: 1<<32 - 1,
	}
	got := a.dhcp(t, "system")
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	a.configure(t, got)
	b.configure(t, b.dhcp(t, "system"))
	reach(t, a, hostNamespace, b.ns)
	n.undo(t, a.plan)
	same(t, "pod", before, state(t, podA))
}

// As Calico has it: an address without a subnet, and a gateway that is only on the link.
func TestGatewayOutsideOfSubnet(t *testing.T) {
	n := newNode(t)
	pod := newNamespace(t)
	calico(t, pod)
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	gateway := netip.MustParseAddr("169.254.1.1")
	want := lease{
		address: netip.MustParsePrefix("10.90.0.2/32"), router: gateway,
		routes: []Route{
			{Destination: netip.MustParsePrefix("169.254.1.1/32")},
			{netip.MustParsePrefix("0.0.0.0/0"), gateway},
		},
		mtu: 1440, seconds: 1<<32 - 1,
	}
	got := m.dhcp(t, "system")
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	m.configure(t, got)
	reach(t, m, hostNamespace)
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// calico gives a pod the node's side of a veth that answers for every address.
func calico(t *testing.T, pod string) {
	t.Helper()
	run(t, hostNamespace, "ip", "link", "add", "cali0", "mtu", "1440", "type", "veth",
		"peer", "name", "eth0", "mtu", "1440", "netns", pod)
	t.Cleanup(func() { removeLink(t, "cali0") })
	run(t, hostNamespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; "+
		"echo 1 >/proc/sys/net/ipv4/conf/cali0/proxy_arp; "+
		"echo 0 >/proc/sys/net/ipv4/neigh/cali0/proxy_delay")
	run(t, hostNamespace, "ip", "link", "set", "cali0", "up")
	run(t, hostNamespace, "ip", "route", "add", "10.90.0.2/32", "dev", "cali0")
	// The way back, for which Calico has the node's own address.
	run(t, hostNamespace, "ip", "addr", "replace", "10.91.0.1/32", "dev", "lo")
	run(t, hostNamespace, "ip", "link", "set", "lo", "up")
	run(t, hostNamespace, "ip", "route", "replace", "default", "dev", "lo")
	t.Cleanup(func() {
		run(t, hostNamespace, "ip", "route", "del", "default", "dev", "lo")
		run(t, hostNamespace, "ip", "addr", "del", "10.91.0.1/32", "dev", "lo")
	})
	run(t, pod, "ip", "addr", "add", "10.90.0.2/32", "dev", "eth0")
	run(t, pod, "ip", "link", "set", "eth0", "up")
	run(t, pod, "ip", "route", "add", "169.254.1.1", "dev", "eth0", "scope", "link")
	run(t, pod, "ip", "route", "add", "default", "via", "169.254.1.1", "dev", "eth0")
}

// What other plug-ins and people may have added to an interface comes back too.
func TestUndoRestoresUnusualSettings(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	for _, command := range [][]string{
		{"addr", "add", "10.88.1.77/24", "dev", "eth0"}, // a secondary one
		{"addr", "add", "10.66.0.1", "peer", "10.66.0.2/32", "dev", "eth0", "label", "eth0:x"},
		{"addr", "add", "10.67.0.1/16", "brd", "10.67.9.9", "dev", "eth0", "noprefixroute"},
		{"addr", "add", "169.254.9.9/16", "dev", "eth0", "scope", "link"},
		{"addr", "add", "fd00:66::1/64", "dev", "eth0", "nodad"},
		{"route", "add", "198.51.100.0/24", "via", "10.99.0.1", "dev", "eth0", "onlink"},
		{"route", "add", "203.0.113.0/24", "dev", "eth0", "metric", "50", "src", "10.88.1.77"},
		{"route", "add", "default", "via", "10.88.1.9", "dev", "eth0", "table", "100"},
		{"route", "add", "192.0.2.9/32", "via", "10.88.1.1", "dev", "eth0", "mtu", "1300"},
		{"-6", "route", "add", "2001:db8::/32", "via", "fd00:66::2", "dev", "eth0", "metric", "9"},
		{"route", "del", "10.88.1.0/24", "dev", "eth0", "src", "10.88.1.2"},
		{"route", "add", "10.88.1.0/24", "dev", "eth0", "metric", "7"},
	} {
		run(t, pod, append([]string{"ip"}, command...)...)
	}
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	if want := netip.MustParsePrefix("10.88.1.2/24"); m.plan.NICs[0].IPv4.Address != want {
		t.Errorf("the guest has %s, want %s", m.plan.NICs[0].IPv4.Address, want)
	}
	m.configure(t, m.dhcp(t, "system"))
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

func TestManyRoutes(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	add := func(i int) {
		run(t, pod, "ip", "route", "add", fmt.Sprintf("198.51.100.%d/32", i), "via", "10.88.1.1")
	}
	const others = 2 // the default one, and that of newNode
	for i := range maxClasslessRoutes - others {
		add(i)
	}
	m := n.start(t, idA, Pod{Netns: pod})
	if got := len(m.dhcp(t, "system").routes); got != maxClasslessRoutes {
		t.Errorf("the guest has got %d routes, want %d", got, maxClasslessRoutes)
	}
	n.undo(t, m.plan)
	add(maxClasslessRoutes)
	_, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod})
	if err == nil || !strings.Contains(err.Error(), "routes") {
		t.Errorf("one route too many: %v", err)
	}
}

func TestUndoKeepsIPv6Disabled(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	inPod(t, pod, func(*netlink.Handle) error { return disableIPv6("eth0", true) })
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// reach has the guest answer to each of some namespaces.
func reach(t *testing.T, m *testGuest, from ...string) {
	t.Helper()
	target := m.serve(t, "hello")
	for _, ns := range from {
		if got := ask(t, ns, target); got != "hello" {
			t.Errorf("%s answers %q to %s", target, got, ns)
		}
	}
}
