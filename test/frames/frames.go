package frames

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Ethernet types, and protocols of IP.
const (
	typeIPv4, typeARP, typeIPv6, typeVLAN = 0x0800, 0x0806, 0x86dd, 0x8100
	protoUDP, protoICMPv6                 = 17, 58
)

var broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Ethernet is a frame of Ethernet II.
func Ethernet(dst, src net.HardwareAddr, kind uint16, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(append([]byte{}, dst...), src...), kind), payload...)
}

// ARP is a message of RFC 826.
func ARP(operation uint16, src net.HardwareAddr, from netip.Addr, dst net.HardwareAddr, to netip.Addr) []byte {
	m := []byte{0, 1, 8, 0, 6, 4}
	m = binary.BigEndian.AppendUint16(m, operation)
	m = append(append(m, src...), from.AsSlice()...)
	return append(append(m, dst...), to.AsSlice()...)
}

// IPv4 is a packet without options.
func IPv4(proto byte, from, to netip.Addr, payload []byte) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	h = append(append(h, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// IPv6 is a packet whose first header after its own is proto, with the hop limit of neighbours.
func IPv6(proto byte, from, to netip.Addr, payload []byte) []byte {
	h := []byte{0x60, 0, 0, 0, 0, 0, proto, 255}
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	return append(append(append(h, from.AsSlice()...), to.AsSlice()...), payload...)
}

// UDP has its checksum, which IPv6 wants.
func UDP(from, to netip.Addr, sport, dport uint16, data string) []byte {
	m := binary.BigEndian.AppendUint16(nil, sport)
	m = binary.BigEndian.AppendUint16(m, dport)
	m = binary.BigEndian.AppendUint16(m, uint16(8+len(data)))
	m = append(append(m, 0, 0), data...)
	binary.BigEndian.PutUint16(m[6:], transportSum(protoUDP, from, to, m))
	return m
}

// ICMPv6 is a message of ICMPv6: its type, and what follows the checksum.
func ICMPv6(from, to netip.Addr, kind byte, body ...byte) []byte {
	m := append([]byte{kind, 0, 0, 0}, body...)
	binary.BigEndian.PutUint16(m[2:], transportSum(protoICMPv6, from, to, m))
	return IPv6(protoICMPv6, from, to, m)
}

// Types of RFC 4861.
const routerAdvertisement, neighborSolicitation, neighborAdvertisement, redirect = 134, 135, 136, 137

// Neighbor is a solicitation or an advertisement of who has target.
func Neighbor(kind byte, from, to, target netip.Addr, mac net.HardwareAddr) []byte {
	body := append([]byte{0x20, 0, 0, 0}, target.AsSlice()...)
	return ICMPv6(from, to, kind, append(append(body, kind-134, 1), mac...)...)
}

var allNodes, allNodesMAC = netip.MustParseAddr("ff02::1"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}

// Advertisement is what a router says of itself.
func Advertisement(src net.HardwareAddr, from netip.Addr) []byte {
	body := []byte{64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}
	return Ethernet(allNodesMAC, src, typeIPv6, ICMPv6(from, allNodes, routerAdvertisement, append(body, src...)...))
}

func transportSum(proto byte, from, to netip.Addr, m []byte) uint16 {
	pseudo := append(append([]byte{}, from.AsSlice()...), to.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(m)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(proto))
	return checksum(append(pseudo, m...))
}

func checksum(data []byte) uint16 {
	var sum uint32
	for i, b := range data {
		if i%2 == 0 {
			sum += uint32(b) << 8
		} else {
			sum += uint32(b)
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
