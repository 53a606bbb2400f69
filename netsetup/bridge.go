package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bridgeAddress is dnsmasq's, the same in each pod: the filter keeps it in there.
var bridgeAddress = netip.MustParsePrefix("169.254.75.10/32")

// addBridge makes the bridge with its marker in one request, then configures it. A new
// bridge has no spanning tree, so that its ports forward at once, whatever its delay.
func addBridge(p Plan, n NIC) error {
	return withinLink(p.Netns, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.Bridge, n.MTU
		attrs.HardwareAddr = net.HardwareAddr(n.BridgeMAC)
		snooping := false // the guest's multicast must not wait for a querier
		err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("add bridge %s: %w", n.Bridge, err)
		}
		bridge, err := n.ownBridge(h)
		if err != nil {
			return err
		}
		if bridge == nil {
			return fmt.Errorf("bridge %s: %w", n.Bridge, ErrInUse)
		}
		return configureBridge(h, bridge, n)
	})
}

func configureBridge(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	if err := disableIPv6(n.Bridge, true); err != nil {
		return err
	}
	// dnsmasq's replies go to the guest as they leave the socket: without the checksum
	// in them, clients that read raw frames would drop them.
	if err := disableTxChecksum(n.Bridge); err != nil {
		return err
	}
	if err := h.AddrReplace(bridge, &netlink.Addr{IPNet: toIPNet(bridgeAddress)}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", bridgeAddress, n.Bridge, err)
	}
	if err := h.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", n.Bridge, err)
	}
	toGuest := &netlink.Route{
		LinkIndex: bridge.Attrs().Index,
		Dst:       toIPNet(netip.PrefixFrom(n.IPv4.Address.Addr(), 32)),
		Src:       bridgeAddress.Addr().AsSlice(),
		Scope:     unix.RT_SCOPE_LINK,
	}
	if err := h.RouteReplace(toGuest); err != nil {
		return fmt.Errorf("add route to guest %s: %w", n.IPv4.Address.Addr(), err)
	}
	return nil
}

// removeBridge ends a machine's hold on the pod's interface: it comes last.
func removeBridge(p Plan, n NIC) error {
	return withinOwn(p, n, func(h *netlink.Handle, bridge netlink.Link) error {
		if err := h.LinkDel(bridge); err != nil {
			return fmt.Errorf("remove bridge %s: %w", n.Bridge, err)
		}
		return nil
	})
}

// ownBridge returns nil where there is no bridge, or one of another machine.
func (n NIC) ownBridge(h *netlink.Handle) (netlink.Link, error) {
	link, err := findLink(h, n.Bridge)
	if err != nil || link == nil || !n.BridgeMAC.equal(link.Attrs().HardwareAddr) {
		return nil, err
	}
	return link, nil
}

// withinOwn runs fn in the pod's namespace if this Plan's bridge stands there; if not,
// there is nothing of this card to undo.
func withinOwn(p Plan, n NIC, fn func(h *netlink.Handle, bridge netlink.Link) error) error {
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		bridge, err := n.ownBridge(h)
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
