package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkAddress returns the pod's own address on a bridge that has the pod's interface as a port. It
// is the same in each pod, and the filter keeps its packets inside the pod.
func linkAddress(bridge string) netip.Prefix {
	address := netip.MustParseAddr("169.254.75.10").As4()
	address[3] += bridge[len(bridge)-1] - '0'
	return netip.PrefixFrom(netip.AddrFrom4(address), 32)
}

// linkNetwork is linkAddress for IPv6. The guest does not use it, but dnsmasq advertises no router on
// an interface without such an address.
func linkNetwork(bridge string) netip.Prefix {
	address := netip.MustParseAddr("fd6e:6f64::1").As16()
	address[7] = bridge[len(bridge)-1] - '0'
	return netip.PrefixFrom(netip.AddrFrom16(address), 64)
}

// addBridge creates the bridge, marks it as the VM's, then configures it. A new bridge has no
// spanning tree, so its ports forward at once, whatever its delay.
func addBridge(p Plan, n NIC) error {
	return withinLink(p.Netns, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.Bridge, n.MTU
		attrs.HardwareAddr = net.HardwareAddr(p.firstMAC(n))
		snooping := false // the guest's multicast must not wait for a querier
		err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("add bridge %s: %w", n.Bridge, err)
		}
		bridge, err := p.ownBridge(h, n)
		if err != nil {
			return err
		}
		if bridge == nil {
			return fmt.Errorf("bridge %s: %w", n.Bridge, ErrInUse)
		}
		if err := markBridge(h, bridge, p, n); err != nil {
			return err
		}
		return configureBridge(h, bridge, n)
	})
}

// firstMAC returns the address with which the bridge is created. It marks the bridge until its
// alias does: the kernel ignores an alias in the request that creates a link.
func (p Plan) firstMAC(n NIC) MAC { return localMAC(p.ID, "bridge "+n.Bridge) }

// markBridge sets the alias that marks the bridge as the VM's, and then the address that guests see.
func markBridge(h *netlink.Handle, bridge netlink.Link, p Plan, n NIC) error {
	if bridge.Attrs().Alias != p.ID {
		if err := h.LinkSetAlias(bridge, p.ID); err != nil {
			return fmt.Errorf("set alias of %s: %w", n.Bridge, err)
		}
	}
	return setMAC(h, bridge, n.BridgeMAC)
}

func configureBridge(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	if err := configureIPv6(h, bridge, n); err != nil {
		return err
	}
	if n.masqueraded() && n.IPv4.valid() {
		// Of a mesh's proxy, packets from a loopback address leave to the guest. Those that the guest sends to one are dropped.
		for _, setting := range []string{"forwarding", "route_localnet"} {
			if err := writeSysctl("ipv4/conf/"+n.Bridge+"/"+setting, "1"); err != nil {
				return err
			}
		}
	}
	// dnsmasq's replies go to the guest as they leave the socket: without the checksum
	// in them, clients that read raw frames would drop them.
	if err := disableTxChecksum(n.Bridge); err != nil {
		return err
	}
	if err := addPodAddresses(h, bridge, n); err != nil {
		return err
	}
	if err := h.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", n.Bridge, err)
	}
	if n.bridged() {
		if err := addNeighbors(h, bridge, n.reachable(n.Original.Neighbors)); err != nil {
			return err
		}
	}
	if err := addGuestRoutes(h, bridge, n); err != nil {
		return err
	}
	return addForwarding(h, bridge, n)
}

// configureIPv6 makes the pod a router for a guest that has IPv6. The pod's link-local address is
// set before the bridge has a port that is up.
func configureIPv6(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	if !n.IPv6.valid() {
		return disableIPv6(n.Bridge, true)
	}
	if err := h.LinkSetIP6AddrGenMode(bridge, nl.IN6_ADDR_GEN_MODE_NONE); err != nil {
		return fmt.Errorf("switch IPv6 addresses of %s off: %w", n.Bridge, err)
	}
	if err := writeSysctl("ipv6/conf/"+n.Bridge+"/accept_ra", "0"); err != nil {
		return err
	}
	return disableIPv6(n.Bridge, false)
}

// addPodAddresses adds the pod's own addresses to the bridge.
func addPodAddresses(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	own := []netip.Prefix{n.IPv4.Pod, n.IPv6.Pod}
	if n.IPv6.valid() {
		own = append(own, netip.PrefixFrom(linkLocal(n.BridgeMAC), 64))
	}
	for _, own := range own {
		if !own.IsValid() {
			continue
		}
		addr := &netlink.Addr{IPNet: toIPNet(own)}
		if own.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // no other host can have it
		}
		if err := h.AddrReplace(bridge, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", own, n.Bridge, err)
		}
	}
	for _, prefix := range n.hidden() {
		addr := &netlink.Addr{
			IPNet: toIPNet(prefix), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE,
			ValidLft: forever, PreferedLft: 0, // the pod does not use it as a source
		}
		if err := h.AddrReplace(bridge, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", prefix, n.Bridge, err)
		}
	}
	return nil
}

// forever is the kernel's lifetime of an address without limit.
const forever = 1<<32 - 1

// addGuestRoutes adds routes to a guest whose address is outside the subnet of the pod's address.
func addGuestRoutes(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	for _, a := range []Addressing{n.IPv4, n.IPv6} {
		guest := a.Address.Addr()
		if !a.valid() || a.Pod.Contains(guest) {
			continue
		}
		route := &netlink.Route{
			LinkIndex: bridge.Attrs().Index,
			Dst:       toIPNet(netip.PrefixFrom(guest, guest.BitLen())),
			Scope:     unix.RT_SCOPE_LINK,
		}
		if guest.Is4() {
			route.Src = a.Pod.Addr().AsSlice()
		}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("add route to guest %s: %w", guest, err)
		}
	}
	return nil
}

// removeBridge releases the pod's interface. It is the last step of an undo.
func removeBridge(p Plan, n NIC) error {
	return withinOwn(p, n, func(h *netlink.Handle, bridge netlink.Link) error {
		if err := removeForwarding(h, n); err != nil {
			return err
		}
		if err := h.LinkDel(bridge); err != nil {
			return fmt.Errorf("remove bridge %s: %w", n.Bridge, err)
		}
		return nil
	})
}

// ownBridge returns the Plan's bridge, and nil if there is none or if it is another VM's. Former
// versions set no alias and kept the first address.
func (p Plan) ownBridge(h *netlink.Handle, n NIC) (netlink.Link, error) {
	link, err := findLink(h, n.Bridge)
	if err != nil || link == nil {
		return nil, err
	}
	if link.Attrs().Alias != p.ID && !p.firstMAC(n).equal(link.Attrs().HardwareAddr) {
		return nil, nil
	}
	return link, nil
}

// withinFirst is withinOwn for the first card that has its bridge, which stands for what the cards share. Cards that were
// released have none.
func withinFirst(p Plan, fn func(h *netlink.Handle, bridge netlink.Link) error) error {
	for _, n := range p.wired() {
		found := false
		err := withinOwn(p, n, func(h *netlink.Handle, bridge netlink.Link) error {
			found = true
			return fn(h, bridge)
		})
		if err != nil || found {
			return err
		}
	}
	return nil
}

// withinOwn runs fn in the pod's namespace if this Plan's bridge exists there. If not,
// there is nothing of this card to undo.
func withinOwn(p Plan, n NIC, fn func(h *netlink.Handle, bridge netlink.Link) error) error {
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		bridge, err := p.ownBridge(h, n)
		if err != nil || bridge == nil {
			return err
		}
		return fn(h, bridge)
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}
