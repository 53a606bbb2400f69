package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The pod routes the IPv6 packets of a bridged guest. A guest learns its router from router
// advertisements alone, and an advertisement can only name its sender. So the pod advertises itself.
// It forwards the guest's packets by the routes that the pod's interface had, which are in a routing
// table for each card. Packets to the guest take the bridge, as with IPv4.

// table returns the number of the routing table for packets that arrive from the bridge.
func (n NIC) table() int { return 7500 + int(n.Bridge[len(n.Bridge)-1]-'0') }

// routed reports whether the pod is the router of a bridged guest and has no global address.
func (n NIC) routed() bool { return n.bridged() && n.IPv6.valid() }

// The guest of a card without a gateway has no default route on that card. It finds the hosts of the card's subnets
// itself, if the pod advertises these as on the link. dnsmasq advertises prefixes in which the bridge has an address. That
// address is the first of the prefix, which no host has as its own (RFC 4291, section 2.6.1), and neither the guest nor
// the network sees it: see podSide.

// maxAdvertised is the maximum number of prefixes in a card's advertisements.
const maxAdvertised = 8

// dnsmasqShortest is the length of the shortest IPv6 prefix that dnsmasq takes.
const dnsmasqShortest = 64

// On a macvlan the pod can't be the guest's router either: the macvlan receives frames for the guest's address alone, and so
// no answer to the pod's question for a gateway's or a neighbour's.

// advertised returns the on-link prefixes of a bridged card without a gateway, or on a macvlan. Of a prefix that is too large
// for dnsmasq, they have the part around the guest.
func (n NIC) advertised() []netip.Prefix {
	if !n.routed() || n.IPv6.Gateway.IsValid() && !n.SharedMAC {
		return nil
	}
	var all []netip.Prefix
	own := n.IPv6.Address
	onLink := []netip.Prefix{netip.PrefixFrom(own.Addr(), max(own.Bits(), dnsmasqShortest)).Masked()}
	for _, r := range n.IPv6.Routes {
		if !r.Gateway.IsValid() && r.Destination.Bits() >= dnsmasqShortest {
			onLink = append(onLink, r.Destination.Masked())
		}
	}
	for _, prefix := range onLink {
		overlaps := slices.ContainsFunc(all, prefix.Overlaps)
		if prefix.IsSingleIP() || prefix.Addr() == own.Addr() || overlaps || len(all) == maxAdvertised {
			continue
		}
		all = append(all, prefix)
	}
	return all
}

// leased returns the prefix of the range that dnsmasq takes the guest's address from, and whether the guest finds the hosts of
// that prefix itself. A bridge of the node must have an address in each range: dnsmasq may otherwise send one card's
// advertisement with the lifetime and the MTU of another.
func (n NIC) leased() (prefix netip.Prefix, onLink bool) {
	own := n.IPv6.Address
	if !n.routed() {
		return own.Masked(), true
	}
	for _, prefix := range n.advertised() {
		if prefix.Contains(own.Addr()) {
			return prefix, true
		}
	}
	return netip.PrefixFrom(own.Addr(), dnsmasqShortest).Masked(), false
}

// hidden returns the addresses of a bridge that are there for dnsmasq alone, with the lengths of their prefixes.
func (n NIC) hidden() []netip.Prefix {
	if !n.routed() {
		return nil
	}
	all := n.advertised()
	if prefix, onLink := n.leased(); !onLink {
		// A router may have assigned the first address of a prefix whose hosts are not on one link.
		address := prefix.Addr().As16()
		copy(address[8:], "nodevirt")
		if netip.AddrFrom16(address) == n.IPv6.Address.Addr() {
			address[15]++
		}
		all = append(all, netip.PrefixFrom(netip.AddrFrom16(address), prefix.Bits()))
	}
	return all
}

func (n NIC) rule() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Table, rule.Priority = unix.AF_INET6, n.Bridge, n.table(), n.table()
	return rule
}

// addForwarding adds the rule and the routes for packets from the guest.
func addForwarding(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	if !n.routed() {
		return nil
	}
	if err := h.RuleAdd(n.rule()); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add IPv6 rule of %s: %w", n.Bridge, err)
	}
	routes := n.IPv6.Routes
	if n.IPv6.Gateway.IsValid() {
		routes = append(slices.Clip(routes),
			Route{Destination: anywhere(netlink.FAMILY_V6), Gateway: n.IPv6.Gateway})
	}
	if subnet := n.IPv6.Address.Masked(); !subnet.IsSingleIP() {
		routes = append([]Route{{Destination: subnet}}, routes...)
	}
	for _, r := range routes {
		route := &netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: toIPNet(r.Destination), Table: n.table()}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
		}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("add route to %s: %w", r.Destination, err)
		}
	}
	return nil
}

// removeForwarding removes the rule. The routes go with the bridge.
func removeForwarding(h *netlink.Handle, n NIC) error {
	if !n.routed() {
		return nil
	}
	err := h.RuleDel(n.rule())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove IPv6 rule of %s: %w", n.Bridge, err)
	}
	return nil
}
