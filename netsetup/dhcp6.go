package netsetup

import (
	"fmt"
	"net/netip"
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
	address := n.IPv6.Address.Addr()
	lines := []string{
		"enable-ra",
		fmt.Sprintf("ra-param=%s,mtu:%d,%d,%d", n.Bridge, n.MTU, advertiseEvery, routerLifetime),
	}
	if n.routed() {
		lines = append(lines,
			fmt.Sprintf("dhcp-range=%s,static,off-link,64", n.IPv6.Pod.Masked().Addr()),
			fmt.Sprintf("dhcp-range=%s,static,128,infinite", address),
			fmt.Sprintf("shared-network=%s,%s", n.Bridge, address))
	} else {
		lines = append(lines, fmt.Sprintf("dhcp-range=%s,static,%d,infinite", address, n.IPv6.Address.Bits()))
	}
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
