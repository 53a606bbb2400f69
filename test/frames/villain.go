package frames

import (
	"net"
	"net/netip"
)

// Villain is what a hostile guest knows: itself, and whom it would like to be.
type Villain struct {
	// MAC is its own address, OtherMAC is unused, and PodMAC that of the pod's side of its link.
	MAC, OtherMAC, PodMAC net.HardwareAddr
	// Own is its address, Other a neighbour's.
	Own, Other, Gateway    netip.Addr
	Own6, Other6, Gateway6 netip.Addr
	// Local and Router6 are the link-local addresses of MAC and of its router.
	Local, Router6 netip.Addr
}

func (v Villain) udp4(src net.HardwareAddr, from, to netip.Addr, sport, dport uint16) []byte {
	return Ethernet(broadcastMAC, src, typeIPv4, IPv4(protoUDP, from, to, UDP(from, to, sport, dport, "hello")))
}

func (v Villain) udp6(from netip.Addr, sport, dport uint16) []byte {
	return v.ipv6(IPv6(protoUDP, from, allNodes, UDP(from, allNodes, sport, dport, "hello")))
}

func (v Villain) ipv6(packet []byte) []byte { return Ethernet(allNodesMAC, v.MAC, typeIPv6, packet) }

func (v Villain) arp(operation uint16, src net.HardwareAddr, from, to netip.Addr) []byte {
	return Ethernet(broadcastMAC, v.MAC, typeARP, ARP(operation, src, from, broadcastMAC, to))
}

func (v Villain) rarp(of net.HardwareAddr, ip netip.Addr) []byte {
	return Ethernet(broadcastMAC, v.MAC, 0x8035, ARP(3, of, ip, of, ip))
}

func (v Villain) neighbor(kind byte, from, target netip.Addr) []byte {
	return v.ipv6(Neighbor(kind, from, allNodes, target, v.MAC))
}

// ToPod is for a UDP port of the pod's own side, at an address that may or may not be the pod's.
func (v Villain) ToPod(to netip.Addr, port uint16) []byte {
	if to.Is4() {
		return Ethernet(v.PodMAC, v.MAC, typeIPv4, IPv4(protoUDP, v.Own, to, UDP(v.Own, to, 1000, port, "hostile")))
	}
	return Ethernet(v.PodMAC, v.MAC, typeIPv6, IPv6(protoUDP, v.Own6, to, UDP(v.Own6, to, 1000, port, "hostile")))
}

var anybody = netip.IPv4Unspecified()

var broadcast4 = netip.MustParseAddr("255.255.255.255")

// Honest is what each guest sends, of the kinds that the villain takes for its own ends.
func (v Villain) Honest() map[string][]byte {
	return map[string][]byte{
		"UDP":                  v.udp4(v.MAC, v.Own, broadcast4, 1000, 1000),
		"UDP over IPv6":        v.udp6(v.Own6, 1000, 1000),
		"DHCP":                 v.udp4(v.MAC, anybody, broadcast4, 68, 67),
		"DHCPv6":               v.udp6(v.Local, 546, 547),
		"ARP request":          v.arp(1, v.MAC, v.Own, v.Gateway),
		"ARP announcement":     v.arp(2, v.MAC, v.Own, v.Own),
		"ARP probe":            v.arp(1, v.MAC, anybody, v.Own),
		"RARP of a migration":  v.rarp(v.MAC, anybody),
		"router solicitation":  v.ipv6(ICMPv6(v.Local, allNodes, 133, 0, 0, 0, 0)),
		"solicitation":         v.neighbor(neighborSolicitation, v.Own6, v.Gateway6),
		"own IPv6 in use?":     v.neighbor(neighborSolicitation, netip.IPv6Unspecified(), v.Own6),
		"own advertisement":    v.neighbor(neighborAdvertisement, v.Own6, v.Own6),
		"link-local's":         v.neighbor(neighborAdvertisement, v.Local, v.Local),
		"multicast membership": v.ipv6(ICMPv6(v.Local, allNodes, 143, 0, 0, 0, 0)),
	}
}

// ownLinkLocal is a link-local address that a guest may choose, or take from a neighbour.
var ownLinkLocal = netip.MustParseAddr("fe80::66")

// Nameless is what a guest may say to its router alone: it is not known whose these
// addresses are.
func (v Villain) Nameless() map[string][]byte {
	return map[string][]byte{
		"a link-local advertisement":           v.neighbor(neighborAdvertisement, ownLinkLocal, ownLinkLocal),
		"a link-local advertisement by global": v.neighbor(neighborAdvertisement, v.Own6, ownLinkLocal),
		"own advertisement by link-local":      v.neighbor(neighborAdvertisement, ownLinkLocal, v.Own6),
		"a solicitation by link-local":         v.neighbor(neighborSolicitation, ownLinkLocal, v.Gateway6),
		"link-local in use?":                   v.neighbor(neighborSolicitation, netip.IPv6Unspecified(), ownLinkLocal),
		"an echo request by link-local":        v.ipv6(ICMPv6(ownLinkLocal, allNodes, 128, 0, 1, 0, 1)),
	}
}

// inFragment puts what follows the header of a packet of ICMPv6 behind that of a first fragment.
func inFragment(packet []byte) []byte {
	return append([]byte{protoICMPv6, 0, 0, 1, 0, 0, 0, 7}, packet[40:]...)
}

// Hostile is what must not come through.
func (v Villain) Hostile() map[string][]byte {
	offer := v.udp4(v.MAC, v.Own, broadcast4, 67, 68)
	vlan := append([]byte{0, 5}, offer[12:]...)
	ra := ICMPv6(v.Local, allNodes, routerAdvertisement, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0)
	// The same behind an extension header without options, and in a fragment.
	hopByHop := append([]byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0}, ra[40:]...)
	fragment := inFragment(ra)
	rest := append([]byte{protoICMPv6, 0, 0, 8, 0, 0, 0, 7}, ra[40:]...)
	loopback4, loopback6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	return map[string][]byte{
		"another MAC":                   v.udp4(v.OtherMAC, v.Own, broadcast4, 1000, 1000),
		"another IP":                    v.udp4(v.MAC, v.Other, broadcast4, 1000, 1000),
		"another IPv6":                  v.udp6(v.Other6, 1000, 1000),
		"no IP":                         v.udp4(v.MAC, anybody, broadcast4, 1000, 1000),
		"loopback as source":            v.udp4(v.MAC, loopback4, broadcast4, 1000, 1000),
		"loopback":                      v.udp4(v.MAC, v.Own, loopback4, 1000, 1000),
		"loopback of IPv6":              Ethernet(allNodesMAC, v.MAC, typeIPv6, IPv6(protoUDP, v.Own6, loopback6, UDP(v.Own6, loopback6, 1, 1, ""))),
		"UDP from link-local":           v.udp6(v.Local, 1000, 1000),
		"the gateway's ARP":             v.arp(2, v.MAC, v.Gateway, v.Own),
		"a neighbour's ARP":             v.arp(1, v.MAC, v.Other, v.Gateway),
		"a gratuitous ARP reply":        v.arp(2, v.MAC, v.Other, v.Other),
		"a gratuitous ARP request":      v.arp(1, v.MAC, v.Other, v.Other),
		"ARP for another MAC":           v.arp(2, v.OtherMAC, v.Own, v.Own),
		"ARP probe of a neighbour":      v.arp(1, v.MAC, anybody, v.Other),
		"RARP with an IP":               v.rarp(v.MAC, v.Own),
		"RARP for another MAC":          v.rarp(v.OtherMAC, anybody),
		"DHCP server":                   offer,
		"DHCP server in a VLAN":         Ethernet(broadcastMAC, v.MAC, typeVLAN, vlan),
		"DHCPv6 server":                 v.udp6(v.Local, 547, 546),
		"DHCPv6 server, IPv6":           v.udp6(v.Own6, 547, 546),
		"router":                        v.ipv6(ra),
		"router with global":            v.ipv6(ICMPv6(v.Own6, allNodes, routerAdvertisement, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0)),
		"router behind a header":        v.ipv6(IPv6(0, v.Local, allNodes, hopByHop)),
		"router in a fragment":          v.ipv6(IPv6(44, v.Local, allNodes, fragment)),
		"router in a last fragment":     v.ipv6(IPv6(44, v.Local, allNodes, rest)),
		"redirect":                      v.ipv6(ICMPv6(v.Local, allNodes, redirect, make([]byte, 36)...)),
		"the gateway's advertisement":   v.neighbor(neighborAdvertisement, v.Own6, v.Gateway6),
		"the pod's advertisement":       v.neighbor(neighborAdvertisement, v.Local, v.Router6),
		"a neighbour's advertisement":   v.neighbor(neighborAdvertisement, v.Own6, v.Other6),
		"an advertisement, unsolicited": v.neighbor(neighborAdvertisement, v.Local, v.Other6),
		"an advertisement in fragments": v.ipv6(IPv6(44, v.Own6, allNodes, inFragment(Neighbor(neighborAdvertisement, v.Own6, allNodes, v.Other6, v.MAC)))),
		"a neighbour's solicitation":    v.neighbor(neighborSolicitation, v.Other6, v.Gateway6),
		"solicitation as the router":    v.neighbor(neighborSolicitation, v.Router6, v.Other6),
		"a neighbour's IPv6 in use?":    v.neighbor(neighborSolicitation, netip.IPv6Unspecified(), v.Other6),
		"spanning tree":                 Ethernet(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, v.MAC, 38, append([]byte{0x42, 0x42, 3}, make([]byte, 43)...)),
		"PPP over Ethernet":             Ethernet(broadcastMAC, v.MAC, 0x8863, make([]byte, 46)),
		"an unknown protocol":           Ethernet(broadcastMAC, v.MAC, 0x88b5, make([]byte, 46)),
	}
}
