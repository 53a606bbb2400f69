package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A bridged guest's IPv6 is routed by the pod: a guest learns its router by advertisements
// alone, and these can name nobody but who sends them. So the pod advertises itself, and what
// the guest sends to it goes on by the routes that the pod's interface had, in a table of the
// card's own. What others send to the guest comes over the bridge as IPv4 does.

// table holds the routes of what comes in by the bridge.
func (n NIC) table() int { return 7500 + int(n.Bridge[len(n.Bridge)-1]-'0') }

// routed says that the pod is the guest's router and has no address of its own.
func (n NIC) routed() bool { return n.bridged() && n.IPv6.valid() }

func (n NIC) rule() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Table, rule.Priority = unix.AF_INET6, n.Bridge, n.table(), n.table()
	return rule
}

func addForwarding(h *netlink.Handle, bridge netlink.Link, n NIC) error {
	if !n.routed() {
		return nil
	}
	if err := h.RuleAdd(n.rule()); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add IPv6 rule of %s: %w", n.Bridge, err)
	}
	routes := n.IPv6.Routes
	if n.IPv6.Gateway.IsValid() {
		routes = append(slices.Clip(routes),
			Route{Destination: anywhere(netlink.FAMILY_V6), Gateway: n.IPv6.Gateway})
	}
	if subnet := n.IPv6.Address.Masked(); !subnet.IsSingleIP() {
		routes = append([]Route{{Destination: subnet}}, routes...)
	}
	for _, r := range routes {
		route := &netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: toIPNet(r.Destination), Table: n.table()}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
		}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("add route to %s: %w", r.Destination, err)
		}
	}
	return nil
}

// removeForwarding leaves the routes, which go with the bridge.
func removeForwarding(h *netlink.Handle, n NIC) error {
	if !n.routed() {
		return nil
	}
	err := h.RuleDel(n.rule())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove IPv6 rule of %s: %w", n.Bridge, err)
	}
	return nil
}
