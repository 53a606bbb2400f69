package netsetup

import (
	"fmt"
	"net/netip"
	"strings"
)

// What a router says of itself, in seconds: how often, and for how long it is one. The latter is
// the most that RFC 4861 has.
const (
	advertiseEvery = 600
	routerLifetime = 9000
)

// ipv6Config has dnsmasq advertise the pod as the guest's router, without a prefix to make
// addresses from: the address comes by DHCPv6, which the advertisement says.
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
