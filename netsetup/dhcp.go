package netsetup

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// The limits of a DHCPv4 option, whose length is one byte.
const (
	maxOption          = 255
	maxNameservers     = maxOption / 4
	maxClasslessRoutes = maxOption / 9 // RFC 3442: 5 bytes of destination, 4 of gateway
)

// dhcpUser is the user that dnsmasq runs as after its start. It keeps CAP_NET_ADMIN alone.
const dhcpUser = "nobody"

// dhcpConfig returns dnsmasq's config: for each card one address of each family, with a lease that
// never expires. Each string in it has been checked, see names.go.
func dhcpConfig(p Plan) string {
	lines := []string{
		"port=0", // no DNS
		"bind-interfaces",
		"no-resolv",
		"no-hosts",
		"no-ping",
		"user=" + dhcpUser,
		// A guest can make dnsmasq log a line for each packet: a file could grow without
		// limit. Errors of the start are on stderr. dnsmasq may not change the owner of its log,
		// see capabilities.
		"log-facility=/dev/null",
		"quiet-dhcp",
		"leasefile-ro",
		"dhcp-authoritative",
		"dhcp-ignore=tag:!known",
	}
	for _, n := range p.NICs {
		if n.managed() {
			lines = append(lines, p.cardConfig(n)...)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// cardConfig returns the lines for one card. dnsmasq matches the card's requests by the bridge's name.
func (p Plan) cardConfig(n NIC) []string {
	lines := []string{"interface=" + n.Bridge, p.hostConfig(n)}
	if n.IPv4.valid() {
		lines = append(lines, p.ipv4Config(n)...)
	}
	if n.IPv6.valid() {
		lines = append(lines, p.ipv6Config(n)...)
	}
	return lines
}

// hostConfig returns the line that gives the card its addresses. It matches the MAC address and any
// client id: a guest's firmware and its operating system have different ones.
func (p Plan) hostConfig(n NIC) string {
	values := []string{n.GuestMAC.String(), "id:*"}
	if n.IPv4.valid() {
		values = append(values, n.IPv4.Address.Addr().String())
	}
	if n.IPv6.valid() {
		values = append(values, "["+n.IPv6.Address.Addr().String()+"]")
	}
	if p.Hostname != "" {
		values = append(values, p.Hostname)
	}
	return "dhcp-host=" + strings.Join(append(values, "infinite"), ",")
}

// ipv4Config returns the lines for the card's DHCPv4.
func (p Plan) ipv4Config(n NIC) []string {
	address, mask := n.IPv4.Address.Addr(), net.CIDRMask(n.IPv4.Address.Bits(), 32)
	option := func(name string, values ...string) string {
		return "dhcp-option=tag:" + n.Bridge + ",option:" + strings.Join(append([]string{name}, values...), ",")
	}
	var lines []string
	// Clients get what the VM's author gives them, such as private options, also if they do not ask for it. dnsmasq
	// adds the last line first to an answer, and omits what does not fit: the guest's own settings come first.
	for _, o := range n.DHCP.values() {
		lines = append(lines, fmt.Sprintf("dhcp-option-force=tag:%s,%s", n.Bridge, o))
	}
	lines = append(lines,
		fmt.Sprintf("dhcp-range=%s,static,%s,infinite", address, net.IP(mask)),
		// An option without a value is not sent. Without the option dnsmasq would send its own address.
		option("router", valid(n.IPv4.Gateway)...),
		option("dns-server", texts(p.nameservers(netip.Addr.Is4), maxNameservers)...),
		// All clients need the MTU, but some do not ask for it.
		fmt.Sprintf("dhcp-option-force=tag:%s,option:mtu,%d", n.Bridge, n.guestMTU(netip.Addr.Is4)),
	)
	if n.bridged() { // the bridge has no address in the guest's subnet
		lines = append(lines, fmt.Sprintf("shared-network=%s,%s", n.Bridge, n.IPv4.Address.Masked().Addr()))
	}
	if searches := fittingSearches(p.Searches); len(searches) > 0 {
		lines = append(lines, option("domain-name", searches[0]),
			option("domain-search", searches...))
	}
	if len(n.IPv4.Routes) > 0 {
		lines = append(lines, option("classless-static-route", routeTexts(n.IPv4)...))
	}
	return lines
}

func (p Plan) nameservers(family func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(p.Nameservers), func(a netip.Addr) bool { return !family(a) })
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

// fittingSearches returns the first domains that fit into an option, without the
// compression of RFC 3397. Kubernetes allows more than DHCP can carry.
func fittingSearches(domains []string) []string {
	room := maxOption
	for i, domain := range domains {
		if room -= len(domain) + 2; room < 0 {
			return domains[:i]
		}
	}
	return domains
}

// classlessRoutes returns the routes and the default route: a client that gets this option
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
			gateway = netip.IPv4Unspecified() // on the link (RFC 3442)
		}
		list = append(list, r.Destination.String(), gateway.String())
	}
	return list
}
