package netsetup

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The router advertisements: their interval and the lifetime of the router, in seconds. The
// lifetime is the maximum of RFC 4861.
const (
	advertiseEvery = 600
	routerLifetime = 9000
)

// ipv6Config returns the lines that make dnsmasq advertise the pod as the guest's router. The
// advertisement has no prefix for addresses and points to DHCPv6 for them.
func (p Plan) ipv6Config(n NIC) []string {
	address, lifetime := n.IPv6.Address.Addr(), 0
	leased, onLink := n.leased()
	if p.defaultRouter(n) {
		lifetime = routerLifetime
	}
	lines := []string{
		"enable-ra",
		fmt.Sprintf("ra-param=%s,mtu:%d,%d,%d", n.Bridge, n.guestMTU(netip.Addr.Is6), advertiseEvery, lifetime),
	}
	for _, prefix := range n.advertised() {
		lines = append(lines, fmt.Sprintf("dhcp-range=%s,static,%d,infinite", prefix.Addr(), prefix.Bits()))
	}
	if n.routed() {
		offLink := "off-link,"
		if lifetime == 0 { // the guest has no other route to its pod
			offLink = ""
		}
		lines = append(lines,
			fmt.Sprintf("dhcp-range=%s,static,%s64", n.IPv6.Pod.Masked().Addr(), offLink),
			fmt.Sprintf("shared-network=%s,%s", n.Bridge, address))
	}
	offLink := ""
	if !onLink {
		offLink = "off-link,"
	}
	lines = append(lines, fmt.Sprintf("dhcp-range=%s,static,%s%d,infinite", address, offLink, leased.Bits()))
	option := func(name string, values []string) {
		if len(values) > 0 {
			lines = append(lines, fmt.Sprintf("dhcp-option=tag:%s,option6:%s,%s", n.Bridge, name, strings.Join(values, ",")))
		}
	}
	var servers []string
	for _, server := range texts(p.nameservers(netip.Addr.Is6), maxNameservers) {
		servers = append(servers, "["+server+"]")
	}
	option("dns-server", servers)
	option("domain-search", fittingSearches(p.Searches))
	return lines
}

// defaultRouter reports whether the guest's default route leads to the pod on a card. A card without a
// gateway must not have one: of several default routers, a guest may use any. Advertisements carry no other routes,
// so a card that has only those keeps its router if no other card has a gateway.
func (p Plan) defaultRouter(n NIC) bool {
	if n.SharedMAC { // see advertised
		return false
	}
	if n.IPv6.Gateway.IsValid() || slices.ContainsFunc(n.IPv6.Routes, func(r Route) bool { return r.Destination.Bits() == 0 }) {
		return true
	}
	others := slices.ContainsFunc(p.NICs, func(o NIC) bool { return o.IPv6.Gateway.IsValid() })
	return !others && slices.ContainsFunc(n.IPv6.Routes, func(r Route) bool { return r.Gateway.IsValid() })
}
