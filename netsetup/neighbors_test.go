package netsetup

import (
	"strings"
	"testing"
)

// TestPermanentNeighbors: the plug-ins of AWS and Azure give a pod a gateway that answers no request for its address, and a
// permanent neighbour for it.
func TestPermanentNeighbors(t *testing.T) {
	n := newNode(t)
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) {
			pod := newNamespace(t)
			aws(t, pod)
			before := state(t, pod) + run(t, pod, "ip", "neigh", "show", "nud", "permanent")
			m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
			m.configure(t, m.dhcp(t, "system"))
			l := m.dhcp6(t, "system")
			m.configure6(t, l)
			serveIn(t, hostNamespace, "10.91.0.1:80", "node")
			serveIn(t, hostNamespace, "[fd00:91::1]:80", "node by IPv6")
			for target, want := range map[string]string{"10.91.0.1:80": "node", "[fd00:91::1]:80": "node by IPv6"} {
				if got := ask(t, m.ns, target); got != want {
					t.Errorf("%s answers the guest %q", target, got)
				}
			}
			serveIn(t, m.ns, ":80", "guest")
			if got := ask(t, hostNamespace, "10.90.0.2:80"); got != "guest" {
				t.Errorf("the guest answers the node %q", got)
			}
			for range 2 {
				n.undo(t, throughJSON(t, m.plan))
				same(t, "pod", before, state(t, pod)+run(t, pod, "ip", "neigh", "show", "nud", "permanent"))
			}
		})
	}
}

// aws gives a pod a veth whose other side answers no requests for the gateways' addresses.
func aws(t *testing.T, pod string) {
	t.Helper()
	const mac = "02:00:00:00:00:77"
	run(t, hostNamespace, "ip", "link", "add", "eni0", "address", mac, "type", "veth", "peer", "name", "eth0", "netns", pod)
	t.Cleanup(func() { removeLink(t, "eni0") })
	run(t, hostNamespace, "sh", "-c", "ip link set lo up; ip link set eni0 up; "+
		"ip route add 10.90.0.2/32 dev eni0; ip addr replace 10.91.0.1/32 dev lo; "+
		"ip -6 route add fd00:90::2/128 dev eni0; ip addr replace fd00:91::1/128 dev lo nodad; "+
		"ip link add out0 type bridge; ip link set out0 up")
	t.Cleanup(func() {
		removeLink(t, "out0")
		run(t, hostNamespace, "sh", "-c", "ip addr del 10.91.0.1/32 dev lo; ip addr del fd00:91::1/128 dev lo")
	})
	for _, command := range []string{
		"addr add 10.90.0.2/32 dev eth0", "addr add fd00:90::2/128 dev eth0 nodad", "link set eth0 up",
		"route add 169.254.1.1 dev eth0 scope link", "route add default via 169.254.1.1 dev eth0",
		"-6 route add default via fe80::1 dev eth0",
		"neigh add 169.254.1.1 lladdr " + mac + " dev eth0 nud permanent",
		"neigh add fe80::1 lladdr " + mac + " dev eth0 nud permanent",
	} {
		run(t, pod, append([]string{"ip"}, strings.Fields(command)...)...)
	}
}

// TestRouteMTU: the guest learns the smallest MTU of the pod's routes, since a bridged guest gets no packet that reports another one.
func TestRouteMTU(t *testing.T) {
	n := newNode(t)
	for _, binding := range []Binding{Bridge, Masquerade} {
		pod := n.addPod(t)
		run(t, pod, "ip", "route", "change", "default", "via", "10.88.1.1", "dev", "eth0", "mtu", "1350")
		run(t, pod, "ip", "-6", "route", "change", "default", "via", "fd00:88::1", "dev", "eth0", "mtu", "1300")
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		l := m.dhcp(t, "system")
		m.settled6(t)
		if got := strings.TrimSpace(run(t, m.ns, "cat", "/proc/sys/net/ipv6/conf/eth0/mtu")); l.mtu != 1350 || got != "1300" {
			t.Errorf("%s: MTU %d by DHCP, %s by router advertisement, want 1350 and 1300", binding, l.mtu, got)
		}
		if got := m.plan.NICs[0].MTU; got != 1400 {
			t.Errorf("%s: the card's MTU is %d, want the interface's", binding, got)
		}
		n.undo(t, m.plan)
	}
}
