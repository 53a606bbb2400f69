package netsetup

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Snapshot is the state of an interface as CNI made it, which Undo restores.
type Snapshot struct {
	// Up and DisableIPv6 are the interface's flag and its sysctl of that name.
	Up          bool           `json:"up"`
	DisableIPv6 bool           `json:"disableIPv6"`
	Addresses   []SavedAddress `json:"addresses,omitempty"`
	Routes      []SavedRoute   `json:"routes,omitempty"`
	// Neighbors are those that CNI set for ever, as some plug-ins do for a gateway that answers no requests for its address.
	Neighbors []Neighbor `json:"neighbors,omitempty"`
}

// Neighbor is a permanent entry of a table of neighbours.
type Neighbor struct {
	Address netip.Addr `json:"address"`
	MAC     MAC        `json:"mac"`
}

// SavedAddress is an address of the interface, IPv4 or IPv6. Numbers are the kernel's.
type SavedAddress struct {
	Address   netip.Prefix `json:"address"`
	Peer      netip.Prefix `json:"peer"`
	Broadcast netip.Addr   `json:"broadcast"`
	Label     string       `json:"label,omitempty"`
	Scope     int          `json:"scope"`
	Flags     int          `json:"flags"`
	Valid     int          `json:"valid"`     // seconds; 4294967295 means without limit
	Preferred int          `json:"preferred"` // seconds
}

// SavedRoute is a route over the interface, IPv4 or IPv6. Numbers are the kernel's.
type SavedRoute struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
	Source      netip.Addr   `json:"source"`
	Scope       uint8        `json:"scope"`
	Protocol    int          `json:"protocol"`
	Priority    int          `json:"priority"`
	Table       int          `json:"table"`
	Type        int          `json:"type"`
	TOS         int          `json:"tos"`
	MTU         int          `json:"mtu"`
	OnLink      bool         `json:"onLink"`
}

// readSnapshot reads an interface in the thread's own network namespace.
func readSnapshot(h *netlink.Handle, link netlink.Link) (Snapshot, error) {
	name := link.Attrs().Name
	disabled, err := ipv6Disabled(name)
	if err != nil {
		return Snapshot{}, err
	}
	snap := Snapshot{Up: link.Attrs().Flags&net.FlagUp != 0, DisableIPv6: disabled}
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list addresses of %s: %w", name, err)
	}
	for _, addr := range addrs {
		if isStatic(addr) {
			snap.Addresses = append(snap.Addresses, saveAddress(addr))
		}
	}
	if snap.Neighbors, err = readNeighbors(h, link); err != nil {
		return Snapshot{}, err
	}
	snap.Routes, err = readRoutes(h, link)
	return snap, err
}

// isStatic reports whether an address is not from a router advertisement: the kernel makes those
// again.
func isStatic(addr netlink.Addr) bool {
	return addr.IP.To4() != nil || addr.Flags&unix.IFA_F_PERMANENT != 0
}

// readRoutes lists the routes over link of all tables but "local", which is the kernel's.
func readRoutes(h *netlink.Handle, link netlink.Link) ([]SavedRoute, error) {
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}
	var saved []SavedRoute
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteListFiltered(family, filter,
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes of %s: %w", link.Attrs().Name, err)
		}
		for _, route := range routes {
			if route.Table != unix.RT_TABLE_LOCAL && route.Protocol != unix.RTPROT_RA {
				saved = append(saved, saveRoute(route))
			}
		}
	}
	return saved, nil
}

func saveAddress(addr netlink.Addr) SavedAddress {
	saved := SavedAddress{
		Address: toPrefix(addr.IPNet), Broadcast: toAddr(addr.Broadcast), Label: addr.Label,
		Scope: addr.Scope, Flags: addr.Flags & keptFlags,
		Valid: addr.ValidLft, Preferred: addr.PreferedLft,
	}
	if addr.Peer != nil {
		saved.Peer = toPrefix(addr.Peer)
	}
	return saved
}

// keptFlags are the flags of an address that are settings. The others report its state.
const keptFlags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS |
	unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_MCAUTOJOIN

func (a SavedAddress) netlink() *netlink.Addr {
	addr := &netlink.Addr{
		IPNet: toIPNet(a.Address), Label: a.Label, Scope: a.Scope, Flags: a.Flags,
		Broadcast: net.IPv4zero, ValidLft: a.Valid, PreferedLft: a.Preferred,
	}
	if a.Broadcast.IsValid() {
		addr.Broadcast = a.Broadcast.AsSlice()
	}
	if a.Peer.IsValid() {
		addr.Peer = toIPNet(a.Peer)
	}
	return addr
}

func saveRoute(r netlink.Route) SavedRoute {
	saved := SavedRoute{
		Destination: toPrefix(r.Dst), Gateway: toAddr(r.Gw), Source: toAddr(r.Src),
		Scope: uint8(r.Scope), Protocol: int(r.Protocol), Priority: r.Priority,
		Table: r.Table, Type: r.Type, TOS: r.Tos, MTU: r.MTU,
		OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0,
	}
	if r.Dst == nil {
		saved.Destination = anywhere(r.Family)
	}
	return saved
}

func (r SavedRoute) netlink(link netlink.Link) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: toIPNet(r.Destination),
		Gw: r.Gateway.AsSlice(), Src: r.Source.AsSlice(), Scope: netlink.Scope(r.Scope),
		Protocol: netlink.RouteProtocol(r.Protocol), Priority: r.Priority, Table: r.Table,
		Type: r.Type, Tos: r.TOS, MTU: r.MTU,
	}
	if r.OnLink {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	return route
}

func anywhere(family int) netip.Prefix {
	if family == netlink.FAMILY_V6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// toAddr returns the invalid address for nil.
func toAddr(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

func toPrefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(toAddr(n.IP), ones)
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}
}
