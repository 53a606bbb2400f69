package netsetup

import (
	"context"
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
func (s *Setup) addBridge(_ context.Context, p Plan) error {
	return withinLink(p.Netns, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = p.Bridge, p.MTU
		attrs.HardwareAddr = net.HardwareAddr(p.BridgeMAC)
		snooping := false // the guest's multicast must not wait for a querier
		err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("add bridge %s: %w", p.Bridge, err)
		}
		bridge, err := p.ownBridge(h)
		if err != nil {
			return err
		}
		if bridge == nil {
			return fmt.Errorf("bridge %s: %w", p.Bridge, ErrInUse)
		}
		return configureBridge(h, bridge, p)
	})
}

func configureBridge(h *netlink.Handle, bridge netlink.Link, p Plan) error {
	if err := disableIPv6(p.Bridge, true); err != nil {
		return err
	}
	// dnsmasq's replies go to the guest as they leave the socket: without the checksum
	// in them, clients that read raw frames would drop them.
	if err := disableTxChecksum(p.Bridge); err != nil {
		return err
	}
	if err := h.AddrReplace(bridge, &netlink.Addr{IPNet: toIPNet(bridgeAddress)}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", bridgeAddress, p.Bridge, err)
	}
	if err := h.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", p.Bridge, err)
	}
	toGuest := &netlink.Route{
		LinkIndex: bridge.Attrs().Index,
		Dst:       toIPNet(netip.PrefixFrom(p.Address.Addr(), 32)),
		Src:       bridgeAddress.Addr().AsSlice(),
		Scope:     unix.RT_SCOPE_LINK,
	}
	if err := h.RouteReplace(toGuest); err != nil {
		return fmt.Errorf("add route to guest %s: %w", p.Address.Addr(), err)
	}
	return nil
}

// removeBridge ends a machine's hold on the pod's interface: it comes last.
func (s *Setup) removeBridge(_ context.Context, p Plan) error {
	return withinOwn(p, func(h *netlink.Handle, bridge netlink.Link) error {
		if err := h.LinkDel(bridge); err != nil {
			return fmt.Errorf("remove bridge %s: %w", p.Bridge, err)
		}
		return nil
	})
}

// ownBridge returns nil where there is no bridge, or one of another machine.
func (p Plan) ownBridge(h *netlink.Handle) (netlink.Link, error) {
	link, err := findLink(h, p.Bridge)
	if err != nil || link == nil || !p.BridgeMAC.equal(link.Attrs().HardwareAddr) {
		return nil, err
	}
	return link, nil
}

// withinOwn runs fn in the pod's namespace if this Plan's bridge stands there; if not,
// there is nothing of this Plan to undo.
func withinOwn(p Plan, fn func(h *netlink.Handle, bridge netlink.Link) error) error {
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		bridge, err := p.ownBridge(h)
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
