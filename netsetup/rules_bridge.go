package netsetup

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/knftables"
)

// Names of ICMPv6 types in nft's words.
const (
	routerTypes    = "icmpv6 type { nd-router-advert, nd-redirect }"
	neighborTypes  = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }"
	multicastTypes = "icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report }"
)

// bridgeChains see each frame on the guest's way.
func bridgeChains(p Plan) []chain {
	base := func(hook knftables.BaseChainHook) *chain {
		return &chain{family: knftables.BridgeFamily, name: string(hook), kind: knftables.FilterType,
			hook: hook, priority: knftables.FilterPriority}
	}
	prerouting, postrouting := base(knftables.PreroutingHook), base(knftables.PostroutingHook)
	input, output := base(knftables.InputHook), base(knftables.OutputHook)
	var guests []chain
	for i, n := range p.NICs {
		if n.bridged() {
			fromNetwork(prerouting, n)
			toNetwork(postrouting, n)
			podSide(input, output, n)
		}
		guest := chain{family: knftables.BridgeFamily, name: "guest" + strconv.Itoa(i)}
		prerouting.add("iifname", strconv.Quote(n.Tap), "jump", guest.name)
		fromGuest(&guest, n)
		guests = append(guests, guest)
	}
	return append([]chain{*prerouting, *postrouting, *input, *output}, guests...)
}

// fromNetwork is about what comes in for the guest.
func fromNetwork(c *chain, n NIC) {
	in := "iifname " + strconv.Quote(n.Interface)
	// What a CNI bridge in hairpin mode sends back. Sent back to the guest itself, it is what the guest
	// asked of a Service and the node found it to serve: with br_netfilter such packets have a new
	// destination, but their source's MAC address still.
	c.add(in, "ether saddr", n.GuestMAC, "ether daddr !=", n.GuestMAC, "drop")
	if !n.managed() {
		return
	}
	// DHCP stays in the pod: other pods' servers, and their guests, are next door. So do
	// the words of routers: the guest's is the pod.
	c.add(in, "udp dport { 67, 68, 546, 547 } drop")
	c.add(in, routerTypes, "drop")
}

func toNetwork(c *chain, n NIC) {
	if n.managed() {
		out := "oifname " + strconv.Quote(n.Interface)
		c.add(out, "udp dport { 67, 68, 546, 547 } drop")
		c.add(out, "icmpv6 type { nd-router-solicit, nd-router-advert } drop")
	}
}

// podSide keeps the pod's own side of the bridge to itself: it speaks with the guest alone. Its
// link-local address is the same in all pods, which would answer for each other. For a guest's
// IPv6 it is a router, and finds its neighbours.
func podSide(input, output *chain, n NIC) {
	in, out := "iifname "+strconv.Quote(n.Interface), "oifname "+strconv.Quote(n.Interface)
	if n.IPv6.valid() {
		input.add(in, neighborTypes, "accept")
		output.add(out, "ip6 saddr", n.IPv6.Address.Addr(), "accept")
		output.add(out, neighborTypes, "accept")
		output.add(out, multicastTypes, "accept")
	}
	input.add(in, "drop")
	output.add(out, "drop")
}

// fromGuest lets pass what a guest may send as itself. What is not named is dropped, frames in
// a VLAN and those of spanning trees too.
func fromGuest(c *chain, n NIC) {
	c.add("ether saddr !=", n.GuestMAC, "drop")
	// Servers and routers are others.
	c.add("udp sport { 67, 547 } drop")
	c.add(routerTypes, "drop")
	// No host should take them from a wire, and some do.
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

func guestIPv4(c *chain, n NIC) {
	own, pod := n.IPv4.Address.Addr(), n.IPv4.Pod.Addr()
	arp := fmt.Sprintf("arp htype 1 arp ptype ip arp saddr ether %s arp saddr ip", n.GuestMAC)
	c.add(arp, own, "accept")
	c.add(arp, "0.0.0.0 arp daddr ip", own, "accept") // RFC 5227: is it in use?
	c.add("ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept")
	if n.bridged() {
		// Most guests send answers to the pod's side to their gateway.
		c.add("ip saddr", own, "ip daddr", pod, "ether daddr set", n.BridgeMAC, "meta pkttype set host accept")
	}
	c.add("ip saddr", own, "accept")
}

// target is where neighbour solicitations and advertisements have their target (RFC 4861).
const target = "@th,64,128"

// guestIPv6 lets the guest choose its link-local address, which systems make of what they like,
// but not those of its routers.
func guestIPv6(c *chain, n NIC) {
	own := n.IPv6.Address.Addr()
	const isLinkLocal, notLinkLocal = "& 0xffc00000000000000000000000000000 == 0xfe800000000000000000000000000000",
		"& 0xffc00000000000000000000000000000 != 0xfe800000000000000000000000000000"
	for _, router := range n.routers() {
		c.add("ip6 saddr", router, "drop")
		c.add("icmpv6 type nd-neighbor-advert", target, hex(router), "drop")
	}
	c.add("icmpv6 type nd-neighbor-advert", target, notLinkLocal, target, "!=", hex(own), "drop")
	c.add("ip6 saddr", own, "accept")
	// What configures the link is never in fragments (RFC 6980).
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
