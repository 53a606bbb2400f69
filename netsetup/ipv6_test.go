package netsetup

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/frames"
)

var compareLeases6 = cmp.Options{compareAddrs, cmp.AllowUnexported(lease6{})}

func TestDualStack(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) {
			n := newNode(t)
			pod := n.addPod(t)
			before := state(t, pod)
			m := n.start(t, idA, Pod{
				Netns: pod, Interfaces: []Interface{{Binding: binding}}, Searches: []string{"svc.cluster.local"},
				Nameservers: addrs("10.96.0.10", "fd00:96::10", "fd00:96::11"),
			})
			want := lease6{
				address: netip.MustParseAddr("fd00:88::2"), valid: 1<<32 - 1, preferred: 1<<32 - 1,
				servers: addrs("fd00:96::10", "fd00:96::11"), searches: []string{"svc.cluster.local"},
			}
			if binding == Masquerade {
				want.address = netip.MustParseAddr("fd10:0:2::2")
			}
			for range 2 {
				if diff := cmp.Diff(want, m.dhcp6(t, "system"), compareLeases6); diff != "" {
					t.Errorf("lease (-want +got):\n%s", diff)
				}
			}
			if got, want := m.router6(t), linkLocal(m.plan.NICs[0].BridgeMAC); got != want {
				t.Errorf("the guest's router is %s, want %s", got, want)
			}
			if got := strings.TrimSpace(run(t, m.ns, "cat", "/proc/sys/net/ipv6/conf/eth0/mtu")); got != "1400" {
				t.Errorf("the guest's MTU for IPv6 is %s", got)
			}
			m.configure6(t, want)
			m.configure(t, m.dhcp(t, "system"))

			m.serve(t, "guest")
			serveIn(t, m.ns, netip.AddrPortFrom(want.address, 80).String(), "guest by IPv6")
			for from, ns := range map[string]string{
				"node": hostNamespace, "another pod": n.addPod(t), "a sidecar": pod,
			} {
				if got := ask(t, ns, "10.88.1.2:80"); got != "guest" {
					t.Errorf("from %s the pod's IPv4 address answers %q", from, got)
				}
				if got := ask(t, ns, "[fd00:88::2]:80"); got != "guest by IPv6" {
					t.Errorf("from %s the pod's IPv6 address answers %q", from, got)
				}
			}
			other := n.addPod(t)
			serveIn(t, other, "[::]:81", "other")
			serveIn(t, hostNamespace, "[fd00:88::1]:81", "node")
			for target, want := range map[string]string{"[fd00:88::4]:81": "other", "[fd00:88::1]:81": "node"} {
				if got := ask(t, m.ns, target); got != want {
					t.Errorf("%s answers the guest %q", target, got)
				}
			}
			for range 2 {
				n.undo(t, throughJSON(t, m.plan))
				same(t, "pod", before, state(t, pod))
			}
			if rules := run(t, pod, "ip", "-6", "rule"); strings.Contains(rules, "nvbr") {
				t.Errorf("rules are left:\n%s", rules)
			}
		})
	}
}

func TestIPv6AloneBothBindings(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		ipam := n.conf["ipam"].(map[string]any)
		ipam["ranges"] = [][]map[string]string{{{"subnet": "fd00:99::/64"}}}
		ipam["routes"] = []map[string]string{{"dst": "::/0"}}
		pod := n.addPod(t)
		before := state(t, pod)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		l := m.dhcp6(t, "system")
		m.configure6(t, l)
		serveIn(t, m.ns, netip.AddrPortFrom(l.address, 80).String(), "guest")
		if got := ask(t, hostNamespace, "[fd00:99::2]:80"); got != "guest" {
			t.Errorf("%s: the pod's address answers %q", binding, got)
		}
		n.undo(t, m.plan)
		same(t, "pod", before, state(t, pod))
		removeLink(t, n.bridge)
	}
}

// As Calico has it: an address without a subnet, and a gateway that is only on the link.
func TestIPv6GatewayOnTheLink(t *testing.T) {
	n := newNode(t)
	pod := newNamespace(t)
	run(t, hostNamespace, "ip", "link", "add", "cali6", "type", "veth", "peer", "name", "eth0", "netns", pod)
	t.Cleanup(func() { removeLink(t, "cali6") })
	run(t, hostNamespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; "+
		"ip addr add fe80::1/64 dev cali6 nodad; ip link set cali6 up; "+
		"ip -6 route add fd00:90::2/128 dev cali6; ip addr add fd00:91::1/128 dev cali6 nodad")
	run(t, pod, "sh", "-c", "ip addr add fd00:90::2/128 dev eth0 nodad; ip link set eth0 up; "+
		"ip -6 route add default via fe80::1 dev eth0")
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	if got := m.plan.NICs[0].IPv6; got.Gateway != netip.MustParseAddr("fe80::1") || len(got.Routes) > 0 {
		t.Errorf("addressing %+v", got)
	}
	l := m.dhcp6(t, "system")
	m.configure6(t, l)
	serveIn(t, hostNamespace, "[fd00:91::1]:80", "node")
	if got := ask(t, m.ns, "[fd00:91::1]:80"); got != "node" {
		t.Errorf("the node answers %q", got)
	}
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// A router on the pods' network is none of the guest's, nor of the pod's.
func TestRoutersElsewhere(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		pod := n.addPod(t)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		m.configure6(t, m.dhcp6(t, "system"))
		m.configure(t, m.dhcp(t, "system"))
		before := m.router6(t)
		inside := sniff(t, m.ns, card)
		rogue := raw(t, hostNamespace, n.bridge)
		src := MAC{2, 0, 0, 0, 0, 0x66}
		send(t, rogue, frames.Advertisement(net.HardwareAddr(src), linkLocal(src)))
		broadcast(t, listenOn(t, hostNamespace, n.bridge, "0.0.0.0:0"), markerPort)
		m.serve(t, "guest")
		ask(t, hostNamespace, "10.88.1.2:80") // comes behind the others
		for binding == Bridge {
			if frame := next(t, inside); frame.Port == markerPort {
				break
			} else if src.equal(frame.Source) {
				t.Error("a strange router's advertisement has come in")
			}
		}
		if got := m.router6(t); got != before {
			t.Errorf("%s: the guest's router is %s, was %s", binding, got, before)
		}
		inPod(t, pod, func(h *netlink.Handle) error {
			routes, err := h.RouteList(nil, netlink.FAMILY_V6)
			for _, r := range routes {
				if toAddr(r.Gw) == linkLocal(src) {
					t.Errorf("%s: the pod has taken the router: %v", binding, r)
				}
			}
			return err
		})
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}

// A guest that comes back under another identifier is the same guest.
func TestReturnUnderAnotherIdentifier(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		m := n.start(t, idA, Pod{Netns: n.addPod(t), Interfaces: []Interface{{Binding: binding}}})
		before := m.dhcp6(t, "before")
		if forgot, err := n.setup.Forget(t.Context(), m.plan); err != nil || !forgot {
			t.Fatalf("%s: forgot %v, %v", binding, forgot, err)
		}
		if _, err := n.setup.Serve(t.Context(), m.plan); err != nil {
			t.Fatal(err)
		}
		if after := m.dhcp6(t, "after"); after.address != before.address {
			t.Errorf("%s: address %s, then %s", binding, before.address, after.address)
		}
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}
