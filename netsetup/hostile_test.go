package netsetup

import (
	"bytes"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// villain is what a hostile guest knows: itself, and whom it would like to be.
type villain struct {
	mac, otherMAC, podMAC   MAC
	own, other, gateway     netip.Addr
	own6, other6, gateway6  netip.Addr
	local, router6, anybody netip.Addr
}

func newVillain(n NIC) villain {
	return villain{
		mac: n.GuestMAC, otherMAC: MAC{2, 0, 0, 0, 0, 0x66}, podMAC: n.BridgeMAC,
		own: n.IPv4.Address.Addr(), other: n.IPv4.Address.Addr().Next(), gateway: n.IPv4.Gateway,
		own6: n.IPv6.Address.Addr(), other6: n.IPv6.Address.Addr().Next(), gateway6: n.IPv6.Gateway,
		local: linkLocal(n.GuestMAC), router6: linkLocal(n.BridgeMAC), anybody: netip.IPv4Unspecified(),
	}
}

func (v villain) udp4(src MAC, from, to netip.Addr, sport, dport uint16) []byte {
	return ether(broadcastMAC, src, typeIPv4, ipv4(protoUDP, from, to, udp(from, to, sport, dport, "hello")))
}

func (v villain) udp6(from netip.Addr, sport, dport uint16) []byte {
	return v.ipv6(ipv6(protoUDP, from, allNodes, udp(from, allNodes, sport, dport, "hello")))
}

func (v villain) ipv6(packet []byte) []byte { return ether(allNodesMAC, v.mac, typeIPv6, packet) }

func (v villain) arp(operation uint16, src MAC, from, to netip.Addr) []byte {
	return ether(broadcastMAC, v.mac, typeARP, arp(operation, src, from, broadcastMAC, to))
}

func (v villain) neighbor(kind byte, from, target netip.Addr) []byte {
	return v.ipv6(neighbor(kind, from, allNodes, target, v.mac))
}

var broadcast4 = netip.MustParseAddr("255.255.255.255")

// honest is what each guest sends, of the kinds that the villain takes for its own ends.
func (v villain) honest() map[string][]byte {
	return map[string][]byte{
		"UDP":                  v.udp4(v.mac, v.own, broadcast4, 1000, 1000),
		"UDP over IPv6":        v.udp6(v.own6, 1000, 1000),
		"DHCP":                 v.udp4(v.mac, v.anybody, broadcast4, 68, 67),
		"DHCPv6":               v.udp6(v.local, 546, 547),
		"ARP request":          v.arp(1, v.mac, v.own, v.gateway),
		"ARP announcement":     v.arp(2, v.mac, v.own, v.own),
		"ARP probe":            v.arp(1, v.mac, v.anybody, v.own),
		"router solicitation":  v.ipv6(icmp6(v.local, allNodes, 133, 0, 0, 0, 0)),
		"solicitation":         v.neighbor(neighborSolicitation, v.own6, v.gateway6),
		"own IPv6 in use?":     v.neighbor(neighborSolicitation, netip.IPv6Unspecified(), v.own6),
		"own advertisement":    v.neighbor(neighborAdvertisement, v.own6, v.own6),
		"link-local's":         v.neighbor(neighborAdvertisement, v.local, v.local),
		"multicast membership": v.ipv6(icmp6(v.local, allNodes, 143, 0, 0, 0, 0)),
	}
}

// hostile is what must not come through.
func (v villain) hostile() map[string][]byte {
	offer := v.udp4(v.mac, v.own, broadcast4, 67, 68)
	vlan := append([]byte{0, 5}, offer[12:]...)
	ra := icmp6(v.local, allNodes, routerAdvertisement, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0)
	// The same behind an extension header without options, and in a fragment.
	hopByHop := append([]byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0}, ra[40:]...)
	fragment := append([]byte{protoICMPv6, 0, 0, 1, 0, 0, 0, 7}, ra[40:]...)
	rest := append([]byte{protoICMPv6, 0, 0, 8, 0, 0, 0, 7}, ra[40:]...)
	loopback4, loopback6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	return map[string][]byte{
		"another MAC":                  v.udp4(v.otherMAC, v.own, broadcast4, 1000, 1000),
		"another IP":                   v.udp4(v.mac, v.other, broadcast4, 1000, 1000),
		"another IPv6":                 v.udp6(v.other6, 1000, 1000),
		"no IP":                        v.udp4(v.mac, v.anybody, broadcast4, 1000, 1000),
		"loopback as source":           v.udp4(v.mac, loopback4, broadcast4, 1000, 1000),
		"loopback":                     v.udp4(v.mac, v.own, loopback4, 1000, 1000),
		"loopback of IPv6":             ether(allNodesMAC, v.mac, typeIPv6, ipv6(protoUDP, v.own6, loopback6, udp(v.own6, loopback6, 1, 1, ""))),
		"UDP from link-local":          v.udp6(v.local, 1000, 1000),
		"the gateway's ARP":            v.arp(2, v.mac, v.gateway, v.own),
		"a neighbour's ARP":            v.arp(1, v.mac, v.other, v.gateway),
		"ARP for another MAC":          v.arp(2, v.otherMAC, v.own, v.own),
		"ARP probe of a neighbour":     v.arp(1, v.mac, v.anybody, v.other),
		"RARP":                         ether(broadcastMAC, v.mac, 0x8035, arp(3, v.mac, v.own, v.mac, v.own)),
		"DHCP server":                  offer,
		"DHCP server in a VLAN":        ether(broadcastMAC, v.mac, typeVLAN, vlan),
		"DHCPv6 server":                v.udp6(v.local, 547, 546),
		"DHCPv6 server, IPv6":          v.udp6(v.own6, 547, 546),
		"router":                       v.ipv6(ra),
		"router with global":           v.ipv6(icmp6(v.own6, allNodes, routerAdvertisement, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0)),
		"router behind a header":       v.ipv6(ipv6(0, v.local, allNodes, hopByHop)),
		"router in a fragment":         v.ipv6(ipv6(44, v.local, allNodes, fragment)),
		"router in a last fragment":    v.ipv6(ipv6(44, v.local, allNodes, rest)),
		"redirect":                     v.ipv6(icmp6(v.local, allNodes, redirect, make([]byte, 36)...)),
		"the gateway's advertisement":  v.neighbor(neighborAdvertisement, v.own6, v.gateway6),
		"the pod's advertisement":      v.neighbor(neighborAdvertisement, v.local, v.router6),
		"a neighbour's advertisement":  v.neighbor(neighborAdvertisement, v.own6, v.other6),
		"solicitation as the router":   v.neighbor(neighborSolicitation, v.router6, v.other6),
		"a neighbour's IPv6 in use?":   v.neighbor(neighborSolicitation, netip.IPv6Unspecified(), v.other6),
		"spanning tree":                ether(MAC{1, 0x80, 0xc2, 0, 0, 0}, v.mac, 38, append([]byte{0x42, 0x42, 3}, make([]byte, 43)...)),
		"PPP over Ethernet":            ether(broadcastMAC, v.mac, 0x8863, make([]byte, 46)),
		"a protocol that nobody knows": ether(broadcastMAC, v.mac, 0x88b5, make([]byte, 46)),
	}
}

// A guest may send whatever it likes: what comes out of its tap is what it may be.
func TestGuestIsItselfAlone(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		pod := n.addPod(t)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		inPod(t, m.ns, silence)
		nic := m.plan.NICs[0]
		v := newVillain(nic)
		guest, inside := raw(t, m.ns, card), sniff(t, pod, nic.Bridge)
		hostile := v.hostile()
		for _, name := range slices.Sorted(maps.Keys(hostile)) {
			guest.send(t, hostile[name])
		}
		honest := v.honest()
		for _, name := range slices.Sorted(maps.Keys(honest)) {
			guest.send(t, honest[name])
		}
		for _, name := range slices.Sorted(maps.Keys(honest)) { // frames keep their order
			for {
				got := inside.next(t)
				if bytes.Equal(got.data, honest[name]) {
					break
				}
				for bad, data := range hostile {
					if bytes.Equal(got.data, data) {
						t.Errorf("%s: comes through: %s", binding, bad)
					}
				}
			}
		}
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}

// silence keeps the guest's own kernel out of a test's frames.
func silence(h *netlink.Handle) error {
	link, err := h.LinkByName(card)
	if err != nil {
		return err
	}
	return h.LinkSetARPOff(link)
}

// Neither the pod's own addresses nor any other way leads a guest to what sidecars listen on.
func TestGuestDoesNotReachThePodsOwnSide(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		pod := n.addPod(t)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		m.configure(t, m.dhcp(t, "system"))
		m.configure6(t, m.dhcp6(t, "system"))
		var sidecar net.PacketConn
		inPod(t, pod, func(*netlink.Handle) (err error) {
			sidecar, err = net.ListenPacket("udp", ":81")
			return err
		})
		t.Cleanup(func() { sidecar.Close() })
		nic := m.plan.NICs[0]
		v := newVillain(nic)
		guest := raw(t, m.ns, card)
		for _, to := range []netip.Addr{nic.IPv4.Pod.Addr(), netip.MustParseAddr("10.88.1.2"), netip.MustParseAddr("127.0.0.1")} {
			guest.send(t, ether(v.podMAC, v.mac, typeIPv4, ipv4(protoUDP, v.own, to, udp(v.own, to, 1000, 81, "hostile"))))
		}
		for _, to := range []netip.Addr{nic.IPv6.Pod.Addr(), v.router6, netip.MustParseAddr("fd00:88::2"), netip.IPv6Loopback()} {
			guest.send(t, ether(v.podMAC, v.mac, typeIPv6, ipv6(protoUDP, v.own6, to, udp(v.own6, to, 1000, 81, "hostile"))))
		}
		m.dhcp6(t, "system") // behind them
		var own net.Conn
		inPod(t, pod, func(*netlink.Handle) (err error) {
			own, err = net.Dial("udp", "127.0.0.1:81")
			return err
		})
		if _, err := own.Write([]byte("own")); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 100)
		if size, from, err := sidecar.ReadFrom(data); err != nil || !strings.HasPrefix(string(data[:size]), "own") {
			t.Errorf("%s: a sidecar hears %q from %v, %v", binding, data[:size], from, err)
		}
		own.Close()
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}

// A masqueraded guest reaches its own network and no other one of the pod's.
func TestGuestStaysOnItsNetwork(t *testing.T) {
	n := newNode(t)
	pod, peer := n.addPod(t), newNamespace(t)
	run(t, pod, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "net1", "netns", peer)
	run(t, pod, "sh", "-c", "ip addr add 10.77.0.1/24 dev net1; ip link set net1 up")
	run(t, peer, "sh", "-c", "ip addr add 10.77.0.2/24 dev net1; ip link set net1 up; ip route add default via 10.77.0.1")
	m := n.start(t, idA, masqueraded(pod))
	m.configure(t, m.dhcp(t, "system"))
	listener := listenOn(t, peer, "net1", "0.0.0.0:9")
	say := func(ns, text string) {
		inPod(t, ns, func(*netlink.Handle) error {
			conn, err := net.Dial("udp", "10.77.0.2:9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte(text))
			return err
		})
	}
	say(m.ns, "guest")
	m.dhcp(t, "system") // behind it
	say(pod, "pod")
	data := make([]byte, 100)
	if size, _, err := listener.ReadFrom(data); err != nil || string(data[:size]) != "pod" {
		t.Errorf("the pod's other network hears %q, %v", data[:size], err)
	}
}
