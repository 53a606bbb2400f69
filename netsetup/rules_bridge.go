package netsetup

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/knftables"
)

// Matches of ICMPv6 types in nft's syntax.
const (
	routerTypes    = "icmpv6 type { nd-router-advert, nd-redirect }"
	neighborTypes  = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }"
	multicastTypes = "icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report }"
)

// bridgeChains returns the chains that see each frame from and to the guest.
func bridgeChains(p Plan) []chain {
	base := func(hook knftables.BaseChainHook) *chain {
		return &chain{family: knftables.BridgeFamily, name: string(hook), kind: knftables.FilterType,
			hook: hook, priority: knftables.FilterPriority}
	}
	prerouting, postrouting := base(knftables.PreroutingHook), base(knftables.PostroutingHook)
	input, output := base(knftables.InputHook), base(knftables.OutputHook)
	forward := base(knftables.ForwardHook)
	var guests []chain
	for i, n := range p.wired() {
		if n.bridged() {
			fromNetwork(prerouting, n)
			toNetwork(postrouting, n)
			podSide(input, output, n)
			guestToNetwork(forward, n)
		}
		guest := chain{family: knftables.BridgeFamily, name: "guest" + strconv.Itoa(i)}
		prerouting.add("iifname", strconv.Quote(n.Tap), "jump", guest.name)
		fromGuest(&guest, n)
		guests = append(guests, guest)
	}
	return append([]chain{*prerouting, *postrouting, *input, *output, *forward}, guests...)
}

// fromNetwork adds the rules for frames that arrive from the network.
func fromNetwork(c *chain, n NIC) {
	in := "iifname " + strconv.Quote(n.Interface)
	// A CNI bridge in hairpin mode sends the guest's own frames back. Frames that it sends back to the
	// guest's address pass: the guest has used a Service that it serves itself, and with br_netfilter
	// the node changed the destination, but not the source's MAC address.
	c.add(in, "ether saddr", n.GuestMAC, "ether daddr !=", n.GuestMAC, "drop")
	if !n.managed() {
		return
	}
	// DHCP stays in the pod: servers and guests of other pods may be on the same network. So do
	// router advertisements: the guest's router is the pod.
	c.add(in, "udp dport { 67, 68, 546, 547 } drop")
	c.add(in, routerTypes, "drop")
}

// toNetwork adds the rules for frames to the network.
func toNetwork(c *chain, n NIC) {
	if n.managed() {
		out := "oifname " + strconv.Quote(n.Interface)
		c.add(out, "udp dport { 67, 68, 546, 547 } drop")
		c.add(out, "icmpv6 type { nd-router-solicit, nd-router-advert } drop")
	}
}

// guestToNetwork adds the rules for frames from the guest to the network. The guest chooses its
// link-local address, and could choose a neighbour's: so it uses that address only with its router,
// which is the pod. Reports of multicast groups change no neighbour's tables.
func guestToNetwork(c *chain, n NIC) {
	if !n.IPv6.valid() {
		return
	}
	out := knftables.Concat("iifname", strconv.Quote(n.Tap), "oifname", strconv.Quote(n.Interface))
	c.add(out, "icmpv6 type nd-neighbor-solicit", target, hex(n.IPv6.Pod.Addr()), "drop") // other pods have the same address
	c.add(out, "ip6 saddr :: icmpv6 type nd-neighbor-solicit", target, isLinkLocal, "drop")
	c.add(out, "icmpv6 type nd-neighbor-advert", target, isLinkLocal, "drop")
	c.add(out, "ip6 saddr fe80::/10", multicastTypes, "accept")
	c.add(out, "ip6 saddr fe80::/10 drop")
}

// podSide isolates the pod's own addresses on the bridge: the pod talks with the guest alone. Its
// link-local address is the same in all pods, so they would answer for each other. For a guest's
// IPv6 the pod is a router and must find its neighbours.
func podSide(input, output *chain, n NIC) {
	in, out := "iifname "+strconv.Quote(n.Interface), "oifname "+strconv.Quote(n.Interface)
	for _, own := range n.hidden() {
		input.add("icmpv6 type nd-neighbor-solicit", target, hex(own.Addr()), "drop")
	}
	if n.IPv6.valid() {
		input.add(in, neighborTypes, "accept")
		output.add(out, "ip6 saddr", n.IPv6.Address.Addr(), "accept")
		output.add(out, neighborTypes, "accept")
		output.add(out, multicastTypes, "accept")
	}
	input.add(in, "drop")
	output.add(out, "drop")
}

// fromGuest accepts frames with the guest's own addresses and drops all others, which include
// frames of VLANs and spanning trees.
func fromGuest(c *chain, n NIC) {
	c.add("ether saddr !=", n.GuestMAC, "drop")
	// A guest must not be a DHCP server or a router.
	c.add("udp sport { 67, 547 } drop")
	c.add(routerTypes, "drop")
	c.add(announcement(n.GuestMAC), "accept")
	// No host should accept loopback addresses from a wire, but some do.
	c.add("ip daddr 127.0.0.0/8 drop")
	c.add("ip6 daddr ::1 drop")
	if !n.managed() {
		c.add("arp saddr ether !=", n.GuestMAC, "drop")
		c.add("ether type { arp, ip, ip6 } accept")
	}
	if n.IPv4.valid() {
		guestIPv4(c, n)
	}
	if n.IPv6.valid() {
		guestIPv6(c, n)
	}
	c.add("drop")
}

// announcement matches the frames by which QEMU announces a guest that came by migration, so that
// switches learn its new port: requests of RARP that contain the guest's MAC address and no others.
func announcement(mac MAC) string {
	const request = "0x0001080006040003" // Ethernet and IPv4, and the lengths of their addresses
	own := fmt.Sprintf("0x%x", []byte(mac))
	return knftables.Concat("ether type 0x8035 @nh,0,64", request, "@nh,64,48", own, "@nh,112,32 0 @nh,144,48", own, "@nh,192,32 0")
}

func guestIPv4(c *chain, n NIC) {
	own, pod := n.IPv4.Address.Addr(), n.IPv4.Pod.Addr()
	arp := fmt.Sprintf("arp htype 1 arp ptype ip arp saddr ether %s arp saddr ip", n.GuestMAC)
	c.add(arp, own, "accept")
	c.add(arp, "0.0.0.0 arp daddr ip", own, "accept") // the probe of RFC 5227: is the address in use?
	c.add("ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept")
	if n.bridged() {
		// Most guests send packets to the pod's link-local address to their gateway.
		c.add("ip saddr", own, "ip daddr", pod, "ether daddr set", n.BridgeMAC, "meta pkttype set host accept")
	}
	c.add("ip saddr", own, "accept")
}

// target is the position of the target in neighbour solicitations and advertisements (RFC 4861).
// The others match it with fe80::/10.
const (
	target       = "@th,64,128"
	isLinkLocal  = "& 0xffc00000000000000000000000000000 == 0xfe800000000000000000000000000000"
	notLinkLocal = "& 0xffc00000000000000000000000000000 != 0xfe800000000000000000000000000000"
)

// guestIPv6 lets the guest choose its link-local address, which each operating system makes in its
// own way. It must not be the address of one of its routers.
func guestIPv6(c *chain, n NIC) {
	own := n.IPv6.Address.Addr()
	for _, router := range n.routers() {
		c.add("ip6 saddr", router, "drop")
		c.add("icmpv6 type nd-neighbor-advert", target, hex(router), "drop")
	}
	c.add("icmpv6 type nd-neighbor-advert", target, notLinkLocal, target, "!=", hex(own), "drop")
	// Messages that configure the link are never fragmented (RFC 6980), and have this hop limit.
	c.add("ip6 hoplimit 255 exthdr frag exists drop")
	c.add("ip6 saddr", own, "accept")
	c.add("exthdr frag exists drop")
	c.add("ip6 saddr :: icmpv6 type { nd-router-solicit, mld-listener-report, mld2-listener-report } accept")
	c.add("ip6 saddr :: icmpv6 type nd-neighbor-solicit", target, hex(own), "accept")
	c.add("ip6 saddr :: icmpv6 type nd-neighbor-solicit", target, isLinkLocal, "accept")
	for _, types := range []string{
		neighborTypes, multicastTypes, "icmpv6 type { nd-router-solicit, echo-request, echo-reply }",
		"udp sport 546 udp dport 547",
	} {
		c.add("ip6 saddr fe80::/10", types, "accept")
	}
}
