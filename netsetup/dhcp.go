package netsetup

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// What fits into an option of DHCPv4, whose length is one byte.
const (
	maxOption          = 255
	maxNameservers     = maxOption / 4
	maxClasslessRoutes = maxOption / 9 // RFC 3442: 5 bytes of destination, 4 of gateway
)

// dhcpUser is who dnsmasq is after its start. It keeps CAP_NET_ADMIN alone.
const dhcpUser = "nobody"

// dhcpConfig is dnsmasq's config: one address for one card, for ever. Each string in it
// has been checked, see names.go.
func dhcpConfig(p Plan) string {
	n := p.NICs[0]
	address, mask := n.IPv4.Address.Addr(), net.CIDRMask(n.IPv4.Address.Bits(), 32)
	lines := []string{
		"port=0", // no DNS
		"interface=" + n.Bridge,
		"bind-interfaces",
		"no-resolv",
		"no-hosts",
		"no-ping",
		"user=" + dhcpUser,
		// A guest can make dnsmasq log a line for each packet: a file could grow for
		// ever. What goes wrong at the start is on stderr.
		"log-facility=/dev/null",
		"quiet-dhcp",
		"leasefile-ro",
		"dhcp-authoritative",
		"dhcp-ignore=tag:!known",
		// The bridge has no address in the guest's subnet.
		fmt.Sprintf("shared-network=%s,%s", n.Bridge, n.IPv4.Address.Masked().Addr()),
		fmt.Sprintf("dhcp-range=%s,static,%s,infinite", address, net.IP(mask)),
		// The card alone decides, not the client id: firmware and system have each their own.
		fmt.Sprintf("dhcp-host=%s,id:*,%s,%sinfinite", n.GuestMAC, address, prefixed(p.Hostname)),
		// An option without a value is not sent: dnsmasq would name itself otherwise.
		option("router", valid(n.IPv4.Gateway)...),
		option("dns-server", texts(p.Nameservers, maxNameservers)...),
		// Not all clients ask for the MTU, and all need it.
		fmt.Sprintf("dhcp-option-force=option:mtu,%d", n.MTU),
	}
	if searches := fittingSearches(p.Searches); len(searches) > 0 {
		lines = append(lines, option("domain-name", searches[0]),
			option("domain-search", searches...))
	}
	if len(n.IPv4.Routes) > 0 {
		lines = append(lines, option("classless-static-route", routeTexts(n.IPv4)...))
	}
	return strings.Join(lines, "\n") + "\n"
}

func option(name string, values ...string) string {
	return "dhcp-option=option:" + strings.Join(append([]string{name}, values...), ",")
}

func prefixed(hostname string) string {
	if hostname == "" {
		return ""
	}
	return hostname + ","
}

func valid(addr netip.Addr) []string {
	if !addr.IsValid() {
		return nil
	}
	return []string{addr.String()}
}

func texts(addrs []netip.Addr, most int) []string {
	var list []string
	for _, addr := range addrs[:min(len(addrs), most)] {
		list = append(list, addr.String())
	}
	return list
}

// fittingSearches are the first domains that fit into an option, counted without the
// compression of RFC 3397: Kubernetes allows for more than DHCP can carry.
func fittingSearches(domains []string) []string {
	room := maxOption
	for i, domain := range domains {
		if room -= len(domain) + 2; room < 0 {
			return domains[:i]
		}
	}
	return domains
}

// classlessRoutes are the routes with the default one: a client that gets this option
// ignores the router option (RFC 3442).
func classlessRoutes(a Addressing) []Route {
	routes := slices.Clip(a.Routes)
	if a.Gateway.IsValid() {
		anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		routes = append(routes, Route{Destination: anywhere, Gateway: a.Gateway})
	}
	return routes
}

func routeTexts(a Addressing) []string {
	var list []string
	for _, r := range classlessRoutes(a) {
		gateway := r.Gateway
		if !gateway.IsValid() {
			gateway = netip.IPv4Unspecified() // on the link, as RFC 3442 says it
		}
		list = append(list, r.Destination.String(), gateway.String())
	}
	return list
}
