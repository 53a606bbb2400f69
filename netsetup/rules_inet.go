package netsetup

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/knftables"
)

// afterOthers is the priority of the chains that forward connections to guests. It is behind dstnat, which is -100: the
// rules of others in the pod, such as a mesh's redirects to its proxy, decide first, and a connection has one destination.
const afterOthers = "-50"

// inetChains returns the chains that see packets to the pod and packets that it forwards.
func inetChains(p Plan) []chain {
	base := func(name string, kind knftables.BaseChainType, hook knftables.BaseChainHook,
		priority knftables.BaseChainPriority) *chain {
		return &chain{family: knftables.InetFamily, name: name, kind: kind, hook: hook, priority: priority}
	}
	input := base("input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority)
	forward := base("forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority)
	toGuest := base("to-guest", knftables.NATType, knftables.PreroutingHook, afterOthers)
	fromPod := base("from-pod", knftables.NATType, knftables.OutputHook, afterOthers)
	masquerade := base("from-guest", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority)
	for _, n := range p.wired() {
		podServices(input, n)
		passOn(forward, n)
		if n.masqueraded() {
			passTo(toGuest, fromPod, n)
			masqueradeGuest(masquerade, n)
		}
	}
	stopOthers(forward, p)
	return []chain{*input, *forward, *toGuest, *fromPod, *masquerade}
}

// podServices lets a guest use DHCP and the router of the pod, and answer connections of a
// sidecar. The guest can't connect to sidecars, nor to servers on the pod's loopback.
func podServices(c *chain, n NIC) {
	in := "iifname " + strconv.Quote(n.Bridge)
	c.add(in, "ct state established,related accept")
	if n.IPv4.valid() {
		c.add(in, "udp dport 67 accept")
		c.add(in, "ip daddr", n.IPv4.Pod.Addr(), "icmp type echo-request accept")
	}
	if n.IPv6.valid() {
		c.add(in, "udp dport 547 accept")
		c.add(in, "icmpv6 type { nd-router-solicit, echo-request } accept")
		c.add(in, neighborTypes, "accept")
		c.add(in, multicastTypes, "accept")
	}
	if n.unserved() { // a plug-in's sidecar may be the guest's DHCP server
		c.add(in, "udp dport { 67, 547 } accept")
	}
	if n.masqueraded() {
		c.add(in, "reject") // with "drop" a guest would wait for its gateway's answer
		return
	}
	c.add(in, "drop")
}

// passOn lets a guest reach the network of its card and no other network of the pod.
func passOn(c *chain, n NIC) {
	inner, outer := strconv.Quote(n.Bridge), strconv.Quote(n.Interface)
	if n.masqueraded() {
		c.add("iifname", inner, "oifname", outer, "accept")
		c.add("iifname", outer, "oifname", inner, "ct state established,related accept")
		c.add("iifname", outer, "oifname", inner, "ct status dnat accept")
	} else {
		c.add("iifname", inner, "oifname", inner, "accept")
	}
	c.add("iifname", inner, "drop")
	c.add("oifname", inner, "drop")
}

// stopOthers keeps a pod that was not a router from forwarding packets of hosts other than its guest.
func stopOthers(c *chain, p Plan) {
	for _, n := range p.NICs {
		key := "ipv4/conf/" + n.Interface + "/forwarding"
		if slices.ContainsFunc(p.Sysctls, func(s Sysctl) bool { return s.Key == key }) {
			c.add("iifname", strconv.Quote(n.Interface), "meta nfproto ipv4 drop")
		}
	}
	if slices.ContainsFunc(p.Sysctls, func(s Sysctl) bool { return s.Key == allForwarding }) {
		c.add("meta nfproto ipv6 drop")
	}
}

// passTo forwards connections to the guest's ports on the pod's addresses to the guest, also those of
// sidecars. Loopback addresses stay the sidecars'.
func passTo(toGuest, fromPod *chain, n NIC) {
	if n.Reserved != 0 {
		toGuest.add("iifname", strconv.Quote(n.Interface), "tcp dport", strconv.Itoa(int(n.Reserved)), "return")
	}
	for _, f := range n.privateFamilies() {
		for _, ports := range n.portMatches(f.icmp) {
			action := fmt.Sprintf("%s daddr { %s } %s dnat %s to %s", f.word, strings.Join(texts(f.pod, len(f.pod)), ", "), ports, f.word, f.guest)
			toGuest.add("iifname", strconv.Quote(n.Interface), action)
			fromPod.add("oifname lo", action)
		}
	}
}

// masqueradeGuest gives the guest's packets the pod's address. A mesh's proxy connects from a loopback address, to which a
// guest can't answer: its packets get the address of the guest's gateway.
func masqueradeGuest(c *chain, n NIC) {
	if n.IPv4.valid() {
		c.add("oifname", strconv.Quote(n.Bridge), "ip saddr 127.0.0.0/8 snat ip to", n.IPv4.Pod.Addr())
	}
	if n.IPv6.valid() {
		c.add("oifname", strconv.Quote(n.Bridge), "ip6 saddr ::1 snat ip6 to", n.IPv6.Pod.Addr())
	}
	for _, f := range n.privateFamilies() {
		c.add("oifname", strconv.Quote(n.Interface), f.word, "saddr", f.guest, "masquerade")
	}
}

// family is an address family in nft's syntax.
type family struct {
	word, icmp string
	pod        []netip.Addr
	guest      netip.Addr
}

func (n NIC) privateFamilies() []family {
	var all []family
	if n.IPv4.valid() {
		all = append(all, family{"ip", "icmp", n.Original.globalAddresses(netip.Addr.Is4), n.IPv4.Address.Addr()})
	}
	if n.IPv6.valid() {
		all = append(all, family{"ip6", "icmpv6", n.Original.globalAddresses(netip.Addr.Is6), n.IPv6.Address.Addr()})
	}
	return all
}

// portMatches returns a match for each protocol of the ports that go to the guest.
func (n NIC) portMatches(icmp string) []string {
	if len(n.Ports) == 0 {
		return []string{"meta l4proto { tcp, udp, sctp }", icmp + " type echo-request"}
	}
	var matches []string
	for _, protocol := range []string{"tcp", "udp"} {
		var numbers []string
		for _, p := range n.Ports {
			number := p.String()
			if p.Protocol == protocol && !slices.Contains(numbers, number) {
				numbers = append(numbers, number)
			}
		}
		if len(numbers) > 0 {
			matches = append(matches, protocol+" dport { "+strings.Join(numbers, ", ")+" }")
		}
	}
	return matches
}

// hex returns an address as a number in nft's syntax.
func hex(a netip.Addr) string { return fmt.Sprintf("0x%x", a.AsSlice()) }
