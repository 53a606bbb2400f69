package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/node"
)

// The cluster's networks.
const (
	controlAddress  = "10.200.0.1"
	apiAddress      = controlAddress + ":6443"
	registryAddress = controlAddress + ":5000"
	nodesBits       = 24
	podsRange       = "10.244.0.0/16"
	servicesRange   = "10.96.0.0/16"
	apiService      = "10.96.0.1"
	dnsService      = "10.96.0.10"
)

// bridge joins the nodes, in the control plane's network namespace.
const bridge = "cluster0"

// nodeAddress is that of a node; they count from 1.
func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 200, 0, byte(10 + i)}) }

// nodePods is the part of podsRange that a node's pods have.
func nodePods(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

// inNetwork calls do on a node's network namespace.
func inNetwork(n *node.Node, do func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPid(n.PID())
	if err != nil {
		return fmt.Errorf("find the network namespace of %s: %w", n.Name(), err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("enter the network namespace of %s: %w", n.Name(), err)
	}
	defer h.Close()
	return do(h)
}

// makeBridge gives the control plane its address, on the bridge that nodes are going to join.
func (o Options) makeBridge(control *node.Node) error {
	return inNetwork(control, func(h *netlink.Handle) error {
		if _, err := h.LinkByName(bridge); err == nil {
			return nil
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = bridge
		if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("make bridge: %w", err)
		}
		if o.DualStack {
			if err := address(h, bridge, netip.MustParseAddr(controlAddress6)); err != nil {
				return err
			}
		}
		return address(h, bridge, netip.MustParseAddr(controlAddress))
	})
}

// join connects a node to the bridge. Its pods are reached through it, and all else through the control
// plane. Services are reached from there through the first node.
func (o Options) join(ctx context.Context, control, n *node.Node, i int) error {
	own := nodeAddress(i)
	there, err := eth0(n)
	if err != nil || there {
		return err
	}
	err = inNetwork(control, func(h *netlink.Handle) error {
		joint, err := h.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find bridge: %w", err)
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex, attrs.Flags = port(i), joint.Attrs().Index, net.FlagUp
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(n.PID())}
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("make the link of %s: %w", n.Name(), err)
		}
		routes := []string{nodePods(i).String()}
		if i == 1 {
			routes = append(routes, servicesRange)
		}
		for _, to := range routes {
			if err := route(h, to, own); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = inNetwork(n, func(h *netlink.Handle) error {
		if err := address(h, "eth0", own); err != nil {
			return err
		}
		return route(h, "0.0.0.0/0", netip.MustParseAddr(controlAddress))
	})
	if err != nil || !o.DualStack {
		return err
	}
	return join6(ctx, control, n, i)
}

// port is the control plane's end of a node's link.
func port(i int) string { return fmt.Sprintf("node%d", i) }

// eth0 reports whether a node has its link.
func eth0(n *node.Node) (there bool, err error) {
	err = inNetwork(n, func(h *netlink.Handle) error {
		_, err := h.LinkByName("eth0")
		there = err == nil
		return nil
	})
	return there, err
}

// address gives a link its address and sets it up.
func address(h *netlink.Handle, name string, ip netip.Addr) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	bits := nodesBits
	if ip.Is6() {
		bits = nodesBits6
	}
	addr := &netlink.Addr{
		IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())},
		Flags: unix.IFA_F_NODAD, // no other node has it, and it can be used at once
	}
	if err := h.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("give %s its address: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// route sends what is for a range to a neighbour.
func route(h *netlink.Handle, to string, via netip.Addr) error {
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	// Replaced, since a node that is lost leaves its routes behind.
	if err := h.RouteReplace(&netlink.Route{Dst: dst, Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("route %s to %s: %w", to, via, err)
	}
	return nil
}
