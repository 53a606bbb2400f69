package netsetup

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// networkKind is a kind of network of a cluster's pods.
type networkKind struct {
	name string
	// lay prepares the node, and returns what gives a pod the interface of a name. Pods have numbers from 1.
	lay func(t *testing.T, l *lab) (join func(t *testing.T, ns, link string, number int))
	// apart says that the pods of the network and its node do not reach each other, and that the node forwards nothing.
	apart bool
	// static says that the network assigns no addresses.
	static bool
	// mtu is what the guest must learn, in bytes; 0 for the interface's default.
	mtu int
}

// networkKinds returns the rows of the matrix.
func networkKinds() []networkKind {
	return []networkKind{
		{name: "veth (CNI's ptp)", lay: point(map[string]any{})},
		{name: "bridge", lay: bridged(true, nil)},
		{name: "bridge without IPAM", lay: bridged(false, nil), apart: true, static: true},
		{name: "macvlan", lay: layMacvlan, apart: true},
		{name: "routed /32 (as Calico)", lay: layRouted(false)},
		{name: "permanent neighbours (as AWS)", lay: layRouted(true)},
		{name: "two addresses of a family", lay: point(map[string]any{"second": true})},
		{name: "MTU of the link", lay: point(map[string]any{"mtu": 1380}), mtu: 1380},
		{name: "MTU of the route", lay: bridged(true, routeMTU), mtu: 1350},
	}
}

// lab is the network of one cell of the matrix.
type lab struct {
	*node
	kind     networkKind
	families []int
	dir      string
	join     func(t *testing.T, ns, link string, number int)
	pods     int
}

// newLab prepares the node for a kind of network with some families of addresses: 4 and 6.
func newLab(t *testing.T, kind networkKind, families ...int) *lab {
	t.Helper()
	l := &lab{node: newNode(t), kind: kind, families: families, dir: t.TempDir()}
	l.setup.anyMAC = true // as on secondary networks, whose cards keep their addresses when they move
	run(t, hostNamespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; ip link set lo up")
	l.join = kind.lay(t, l)
	return l
}

// has reports whether the network has addresses of a family.
func (l *lab) has(family int) bool { return slices.Contains(l.families, family) }

// site is a pod on the network.
type site struct {
	ns, link string
	number   int
}

// add makes a pod with an interface of a name on the network.
func (l *lab) add(t *testing.T, link string) site {
	t.Helper()
	l.pods++
	s := site{newNamespace(t), link, l.pods}
	l.join(t, s.ns, link, s.number)
	return s
}

// own returns the address of a family that a host has on a network that assigns none.
func (s site) own(family int) netip.Prefix {
	if family == 4 {
		return netip.MustParsePrefix(fmt.Sprintf("10.66.0.%d/24", 100+s.number))
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd66::%d/64", 100+s.number))
}

// address returns a pod's first address of a family. To others, the kernel sends from the address of the same subnet.
func (s site) address(t *testing.T, family int) (found netip.Addr) {
	t.Helper()
	inPod(t, s.ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(s.link)
		if err != nil {
			return err
		}
		all, err := h.AddrList(link, map[int]int{4: netlink.FAMILY_V4, 6: netlink.FAMILY_V6}[family])
		for _, a := range all {
			if ip := toAddr(a.IP); s.own(family).Masked().Contains(ip) {
				found = ip
			}
		}
		return err
	})
	return found
}

// command runs a command of ip for each family of the network.
func (l *lab) command(t *testing.T, ns, four, six string) {
	t.Helper()
	for family, command := range map[int]string{4: four, 6: six} {
		if l.has(family) && command != "" {
			run(t, ns, append([]string{"ip"}, strings.Fields(command)...)...)
		}
	}
}

// ipam is CNI's host-local for the network's families.
func (l *lab) ipam(second bool) map[string]any {
	var ranges [][]map[string]string
	var routes []map[string]string
	add := func(family int, route string, subnets ...string) {
		if !l.has(family) {
			return
		}
		routes = append(routes, map[string]string{"dst": route})
		for i, s := range subnets {
			if i == 0 || second {
				ranges = append(ranges, []map[string]string{{"subnet": s}})
			}
		}
	}
	add(4, "0.0.0.0/0", "10.66.0.0/24", "10.67.0.0/24")
	add(6, "::/0", "fd66::/64", "fd67::/64")
	return map[string]any{"type": "host-local", "dataDir": l.dir, "ranges": ranges, "routes": routes}
}

// cniJoin has a plug-in of CNI join pods.
func (l *lab) cniJoin(conf map[string]any) func(t *testing.T, ns, link string, number int) {
	conf["cniVersion"], conf["name"] = "0.4.0", "matrix"
	return func(t *testing.T, ns, link string, number int) {
		t.Helper()
		id := fmt.Sprintf("matrix%d", number)
		runCNI(t, conf, "ADD", id, ns, link)
		t.Cleanup(func() { runCNI(t, conf, "DEL", id, ns, link) })
	}
}

// point lays a network of veth pairs, by CNI's ptp.
func point(options map[string]any) func(*testing.T, *lab) func(*testing.T, string, string, int) {
	return func(_ *testing.T, l *lab) func(*testing.T, string, string, int) {
		conf := map[string]any{"type": "ptp", "ipam": l.ipam(options["second"] == true)}
		if mtu, is := options["mtu"]; is {
			conf["mtu"] = mtu
		}
		return l.cniJoin(conf)
	}
}

// bridged lays a bridge of the node's, by CNI, with IPAM or without. A pod's interface may get further settings.
func bridged(ipam bool, settings func(t *testing.T, l *lab, ns, link string)) func(*testing.T, *lab) func(*testing.T, string, string, int) {
	return func(t *testing.T, l *lab) func(*testing.T, string, string, int) {
		conf := map[string]any{"type": "bridge", "bridge": "mx-bridge", "hairpinMode": true}
		if ipam {
			conf["isGateway"], conf["ipam"] = true, l.ipam(false)
		}
		t.Cleanup(func() { removeLink(t, "mx-bridge") })
		join := l.cniJoin(conf)
		return func(t *testing.T, ns, link string, number int) {
			t.Helper()
			join(t, ns, link, number)
			if settings != nil {
				settings(t, l, ns, link)
			}
		}
	}
}

// routeMTU sets the MTU of a pod's default routes.
func routeMTU(t *testing.T, l *lab, ns, link string) {
	t.Helper()
	l.command(t, ns, "route change default via 10.66.0.1 dev "+link+" mtu 1350", "-6 route change default via fd66::1 dev "+link+" mtu 1350")
}

// layMacvlan lays a network on which the node has the parent of macvlans, and a router is elsewhere.
func layMacvlan(t *testing.T, l *lab) func(*testing.T, string, string, int) {
	t.Helper()
	router := newNamespace(t)
	run(t, hostNamespace, "ip", "link", "add", "mx-lan", "type", "veth", "peer", "name", "lan", "netns", router)
	t.Cleanup(func() { removeLink(t, "mx-lan") })
	run(t, hostNamespace, "ip", "link", "set", "mx-lan", "up")
	run(t, router, "ip", "link", "set", "lan", "up")
	l.command(t, router, "addr add 10.66.0.1/24 dev lan", "addr add fd66::1/64 dev lan nodad")
	return l.cniJoin(map[string]any{"type": "macvlan", "master": "mx-lan", "mode": "bridge", "ipam": l.ipam(false)})
}

// layRouted lays a network of pods with an address each, and routes of the node to them. The gateways of pods are
// addresses for which the node answers, or for which the pods have permanent neighbours.
func layRouted(permanent bool) func(*testing.T, *lab) func(*testing.T, string, string, int) {
	return func(t *testing.T, l *lab) func(*testing.T, string, string, int) {
		t.Helper()
		run(t, hostNamespace, "sh", "-c", "ip link add mx-out type bridge; ip link set mx-out up; ip route add default dev mx-out")
		t.Cleanup(func() { removeLink(t, "mx-out") })
		l.command(t, hostNamespace, "addr replace 10.91.0.1/32 dev lo", "addr replace fd91::1/128 dev lo nodad")
		t.Cleanup(func() { l.command(t, hostNamespace, "addr del 10.91.0.1/32 dev lo", "addr del fd91::1/128 dev lo") })
		return func(t *testing.T, ns, link string, number int) {
			t.Helper()
			outer, mac := fmt.Sprintf("mx%d", number), fmt.Sprintf("02:00:00:00:77:%02x", number)
			four, six := fmt.Sprintf("10.66.0.%d/32", number+1), fmt.Sprintf("fd66::%d/128", number+1)
			run(t, hostNamespace, "ip", "link", "add", outer, "address", mac, "type", "veth", "peer", "name", link, "netns", ns)
			t.Cleanup(func() { removeLink(t, outer) })
			run(t, hostNamespace, "ip", "link", "set", outer, "up")
			l.command(t, hostNamespace, "route add "+four+" dev "+outer, "-6 route add "+six+" dev "+outer)
			l.command(t, ns, "addr add "+four+" dev "+link, "addr add "+six+" dev "+link+" nodad")
			run(t, ns, "ip", "link", "set", link, "up")
			if permanent {
				l.command(t, ns, "neigh add 169.254.1.1 lladdr "+mac+" dev "+link+" nud permanent", "neigh add fe80::1 lladdr "+mac+" dev "+link+" nud permanent")
			} else {
				run(t, hostNamespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/"+outer+"/proxy_arp; echo 0 >/proc/sys/net/ipv4/neigh/"+outer+"/proxy_delay")
				run(t, hostNamespace, "ip", "addr", "add", "fe80::1/64", "dev", outer, "nodad")
			}
			l.command(t, ns, "route add 169.254.1.1 dev "+link+" scope link", "")
			l.command(t, ns, "route add default via 169.254.1.1 dev "+link, "-6 route add default via fe80::1 dev "+link)
		}
	}
}
