package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// takeInterface removes the pod's addresses from its interface and makes it a port of the
// bridge. The kernel drops the routes with the addresses.
func takeInterface(p Plan, n NIC) error {
	if n.masqueraded() {
		return nil
	}
	return withinLink(p.Netns, func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(n.Bridge)
		if err != nil {
			return fmt.Errorf("look up bridge %s: %w", n.Bridge, err)
		}
		link, err := h.LinkByName(n.Interface)
		if err != nil {
			return fmt.Errorf("look up interface %s: %w", n.Interface, err)
		}
		if err := h.LinkSetDown(link); err != nil {
			return fmt.Errorf("set %s down: %w", n.Interface, err)
		}
		if err := disableIPv6(n.Interface, true); err != nil {
			return err
		}
		if err := removeAddresses(h, link); err != nil {
			return err
		}
		if err := setMAC(h, link, n.PodMAC); err != nil {
			return err
		}
		if err := makePort(h, link, bridge); err != nil {
			return err
		}
		if err := n.neighborPorts(h, link); err != nil || !n.SharedMAC {
			return err
		}
		return forgetOwnAddress(h, link, n)
	})
}

// makePort makes the pod's interface a port of the bridge that does not learn addresses. A CNI
// bridge in hairpin mode sends the guest's own broadcasts back: from them the port would learn
// the guest's address.
func makePort(h *netlink.Handle, link, bridge netlink.Link) error {
	name := link.Attrs().Name
	if err := h.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("make %s a port of %s: %w", name, bridge.Attrs().Name, err)
	}
	if err := h.LinkSetLearning(link, false); err != nil {
		return fmt.Errorf("switch learning of %s off: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// forgetOwnAddress makes the bridge forward frames for the port's own address to the tap, from which
// it has learned that address, instead of delivering them to the pod.
func forgetOwnAddress(h *netlink.Handle, link netlink.Link, n NIC) error {
	err := h.NeighDel(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(n.PodMAC),
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the bridge's entry for the address of %s: %w", n.Interface, err)
	}
	return nil
}

// restoreInterface restores the interface from the Plan's snapshot.
func restoreInterface(p Plan, n NIC) error {
	if n.masqueraded() {
		return nil
	}
	return withinOwn(p, n, func(h *netlink.Handle, bridge netlink.Link) error {
		// Its route to the guest would compete with the pod's own address.
		if err := h.LinkSetDown(bridge); err != nil {
			return fmt.Errorf("set %s down: %w", n.Bridge, err)
		}
		link, err := findLink(h, n.Interface)
		if err != nil || link == nil { // CNI has removed it
			return err
		}
		if err := h.LinkSetNoMaster(link); err != nil {
			return fmt.Errorf("remove %s from its bridge: %w", n.Interface, err)
		}
		if err := h.LinkSetDown(link); err != nil {
			return fmt.Errorf("set %s down: %w", n.Interface, err)
		}
		if err := setMAC(h, link, n.OriginalMAC); err != nil {
			return err
		}
		return n.Original.restore(h, link)
	})
}

// restore sets the interface to the state of the snapshot. The kernel dictates the order: IPv6
// addresses and all routes need the interface up.
func (s Snapshot) restore(h *netlink.Handle, link netlink.Link) error {
	name := link.Attrs().Name
	if err := disableIPv6(name, s.DisableIPv6); err != nil {
		return err
	}
	if s.Up {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for _, a := range s.byAge() {
		addr := a.netlink()
		if a.Address.Addr().Is6() { // a route can't have a source that the kernel still looks for elsewhere
			addr.Flags |= unix.IFA_F_NODAD
		}
		if err := h.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("restore address %s of %s: %w", a.Address, name, err)
		}
	}
	if err := s.restoreRoutes(h, link); err != nil || !s.Up {
		return err
	}
	return addNeighbors(h, link, s.Neighbors)
}

// restoreRoutes adds the snapshot's routes. It also removes routes that the kernel made for an
// address and CNI had removed. It keeps those of an IPv6 link-local address, which may be newer
// than the snapshot. Routes without a gateway come first: they make the gateways reachable.
func (s Snapshot) restoreRoutes(h *netlink.Handle, link netlink.Link) error {
	if !s.Up {
		return nil
	}
	current, err := readRoutes(h, link)
	if err != nil {
		return err
	}
	for _, r := range current {
		if slices.Contains(s.Routes, r) || r.Destination.Addr().IsLinkLocalUnicast() &&
			r.Destination.Addr().Is6() {
			continue
		}
		if err := h.RouteDel(r.netlink(link)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r.Destination, err)
		}
	}
	for _, withGateway := range []bool{false, true} {
		for _, r := range s.Routes {
			if r.Gateway.IsValid() != withGateway || slices.Contains(current, r) {
				continue
			}
			err := h.RouteAdd(r.netlink(link))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("restore route %s: %w", r.Destination, err)
			}
		}
	}
	return nil
}

func removeAddresses(h *netlink.Handle, link netlink.Link) error {
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, addr := range addrs {
		err := h.AddrDel(link, &addr)
		// A secondary address goes with its primary.
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s: %w", addr.IPNet, err)
		}
	}
	return nil
}

func setMAC(h *netlink.Handle, link netlink.Link, mac MAC) error {
	if mac.equal(link.Attrs().HardwareAddr) {
		return nil
	}
	if err := h.LinkSetHardwareAddr(link, net.HardwareAddr(mac)); err != nil {
		return fmt.Errorf("set address of %s to %s: %w", link.Attrs().Name, mac, err)
	}
	return nil
}
