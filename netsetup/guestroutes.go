package netsetup

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// byAge returns the addresses in the order in which CNI added them, which is that of its result. The kernel lists a new
// IPv4 address last and a new IPv6 address first.
func (s Snapshot) byAge() []SavedAddress {
	var all []SavedAddress
	for _, a := range s.Addresses {
		if a.Address.Addr().Is4() {
			all = append(all, a)
		}
	}
	for _, a := range slices.Backward(s.Addresses) {
		if !a.Address.Addr().Is4() {
			all = append(all, a)
		}
	}
	return all
}

// first returns the first global address of a family in CNI's result. It comes without its subnet if the pod has no
// route to that on the link, as with CNI's ptp: the guest must not create one.
func (s Snapshot) first(family func(netip.Addr) bool) (netip.Prefix, bool) {
	for _, a := range s.byAge() {
		if !family(a.Address.Addr()) || a.Scope != unix.RT_SCOPE_UNIVERSE {
			continue
		}
		onLink := slices.ContainsFunc(s.guestTable(family), func(r SavedRoute) bool {
			return !r.Gateway.IsValid() && r.Destination == a.Address.Masked()
		})
		if onLink {
			return a.Address, true
		}
		return netip.PrefixFrom(a.Address.Addr(), a.Address.Addr().BitLen()), true
	}
	return netip.Prefix{}, false
}

// globalAddresses returns the addresses of a family that are reachable from outside the pod, in the order of CNI's result.
func (s Snapshot) globalAddresses(family func(netip.Addr) bool) []netip.Addr {
	var all []netip.Addr
	for _, a := range s.byAge() {
		if family(a.Address.Addr()) && a.Scope == unix.RT_SCOPE_UNIVERSE {
			all = append(all, a.Address.Addr())
		}
	}
	return all
}

// routeMTU returns the smallest MTU of the routes of a family, 0 if none has one. A bridged guest has no router in the pod
// that reports a packet as too large, and neither DHCP nor advertisements give a route an MTU.
func (s Snapshot) routeMTU(family func(netip.Addr) bool) int {
	least := 0
	for _, r := range s.guestTable(family) {
		if r.MTU > 0 && (least == 0 || r.MTU < least) {
			least = r.MTU
		}
	}
	return least
}

func (s Snapshot) hasGateway6() bool {
	return slices.ContainsFunc(s.guestTable(netip.Addr.Is6), func(r SavedRoute) bool {
		return r.Destination.Bits() == 0
	})
}

// guestTable returns the routes of a family that the guest can have too, by priority.
func (s Snapshot) guestTable(family func(netip.Addr) bool) []SavedRoute {
	var table []SavedRoute
	for _, r := range s.Routes {
		if family(r.Destination.Addr()) && r.Table == unix.RT_TABLE_MAIN &&
			r.Type == unix.RTN_UNICAST && r.TOS == 0 && !isLinks(r.Destination) {
			table = append(table, r)
		}
	}
	slices.SortStableFunc(table, func(a, b SavedRoute) int { return a.Priority - b.Priority })
	return table
}

// guestRoutes returns the default gateway and the other routes. Routes on the link come first,
// so that a client that adds them in order finds each gateway reachable.
func (s Snapshot) guestRoutes(address netip.Prefix) (gateway netip.Addr, routes []Route) {
	family := netip.Addr.Is4
	if address.Addr().Is6() {
		family = netip.Addr.Is6
	}
	onLink := []netip.Prefix{address.Masked()}
	reach := func(dst netip.Prefix) {
		if !slices.Contains(onLink, dst) {
			onLink = append(onLink, dst)
		}
	}
	var via []Route
	seen := map[netip.Prefix]bool{}
	for _, r := range s.guestTable(family) {
		if seen[r.Destination] {
			continue
		}
		seen[r.Destination] = true
		switch {
		case !r.Gateway.IsValid():
			reach(r.Destination)
		case r.Destination.Bits() == 0:
			gateway = r.Gateway
		default:
			via = append(via, Route{Destination: r.Destination, Gateway: r.Gateway})
		}
	}
	for _, gw := range append([]netip.Addr{gateway}, gateways(via)...) {
		covered := slices.ContainsFunc(onLink, func(p netip.Prefix) bool { return p.Contains(gw) })
		if gw.IsValid() && !covered && (gw.Is4() || !gw.IsLinkLocalUnicast()) { // an "onlink" route of the pod
			reach(netip.PrefixFrom(gw, gw.BitLen()))
		}
	}
	for _, dst := range onLink[1:] {
		routes = append(routes, Route{Destination: dst})
	}
	return gateway, append(routes, via...)
}

func gateways(routes []Route) []netip.Addr {
	var gws []netip.Addr
	for _, r := range routes {
		gws = append(gws, r.Gateway)
	}
	return gws
}

// isLinks reports whether the kernel adds a route to p for each link.
func isLinks(p netip.Prefix) bool {
	return p.Addr().Is6() && (p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast())
}
