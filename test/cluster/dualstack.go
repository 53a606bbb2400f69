package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/node"
)

// The IPv6 networks of a cluster that has them, beside those of IPv4.
const (
	controlAddress6 = "fd00:10:200::1"
	nodesBits6      = 64
	podsRange6      = "fd00:10:244::/48"
	servicesRange6  = "fd00:10:96::/112"
)

func nodeAddress6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:10:200::1%d", i)) }

// nodePods6 is the part of podsRange6 that a node's pods have; invalid in a cluster without IPv6.
func (o Options) nodePods6(i int) netip.Prefix {
	if !o.DualStack {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", i))
}

// ranges is a flag's value: for IPv4, and for IPv6 in a cluster that has it.
func (o Options) ranges(four, six string) string {
	if !o.DualStack {
		return four
	}
	return four + "," + six
}

// join6 gives a node its IPv6 address and the routes that it has for IPv4, too.
func join6(ctx context.Context, control, n *node.Node, i int) error {
	own := nodeAddress6(i)
	err := inNetwork(control, func(h *netlink.Handle) error {
		if i == 1 {
			if err := route(h, servicesRange6, own); err != nil {
				return err
			}
		}
		return route(h, fmt.Sprintf("fd00:10:244:%d::/64", i), own)
	})
	if err != nil {
		return err
	}
	for _, forwarder := range []*node.Node{control, n} {
		if out, err := forwarder.Command(ctx, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1").CombinedOutput(); err != nil {
			return fmt.Errorf("let %s forward IPv6: %w: %s", forwarder.Name(), err, out)
		}
	}
	return inNetwork(n, func(h *netlink.Handle) error {
		if err := address(h, "eth0", own); err != nil {
			return err
		}
		return route(h, "::/0", netip.MustParseAddr(controlAddress6))
	})
}
