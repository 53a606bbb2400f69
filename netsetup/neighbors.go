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

// Some CNI plug-ins, such as those of AWS and Azure, give a pod a gateway that answers no requests for its address. They
// set a permanent neighbour instead. DHCP can't do that for a guest, so the bridge answers the guest's requests
// for such an IPv4 address with the MAC address that CNI set. For IPv6 the pod is the guest's router and uses the
// neighbour itself.

// maxNeighbors is the maximum number of permanent neighbours of an interface.
const maxNeighbors = 64

// readNeighbors returns the permanent neighbours of a link. Multicast addresses, which the kernel adds itself, are not among them.
func readNeighbors(h *netlink.Handle, link netlink.Link) ([]Neighbor, error) {
	all, err := h.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours of %s: %w", link.Attrs().Name, err)
	}
	var kept []Neighbor
	for _, n := range all {
		unicast := len(n.HardwareAddr) == 6 && n.HardwareAddr[0]&1 == 0
		if n.State&netlink.NUD_PERMANENT == 0 || n.Flags&netlink.NTF_PROXY != 0 || !unicast || n.IP.IsMulticast() {
			continue
		}
		if kept = append(kept, Neighbor{Address: toAddr(n.IP), MAC: MAC(n.HardwareAddr)}); len(kept) > maxNeighbors {
			return nil, fmt.Errorf("%w: interface %s has more than %d permanent neighbours", ErrUnsuited, link.Attrs().Name, maxNeighbors)
		}
	}
	return kept, nil
}

// addNeighbors sets neighbours of a link.
func addNeighbors(h *netlink.Handle, link netlink.Link, all []Neighbor) error {
	for _, n := range all {
		family := netlink.FAMILY_V4
		if n.Address.Is6() {
			family = netlink.FAMILY_V6
		}
		err := h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT,
			IP: n.Address.AsSlice(), HardwareAddr: net.HardwareAddr(n.MAC),
		})
		if err != nil {
			return fmt.Errorf("set neighbour %s of %s: %w", n.Address, link.Attrs().Name, err)
		}
	}
	return nil
}

// neighborPorts has the bridge send frames for the MAC addresses of neighbours to the pod's interface, and answer requests for
// neighbours behind it, as the access points of IEEE 802.11 do.
func (n NIC) neighborPorts(h *netlink.Handle, link netlink.Link) error {
	for _, neighbor := range n.Original.Neighbors {
		err := h.NeighAppend(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
			State: netlink.NUD_NOARP, HardwareAddr: net.HardwareAddr(neighbor.MAC), // "static"
		})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("set the port of neighbour %s: %w", neighbor.Address, err)
		}
	}
	if len(n.Original.Neighbors) == 0 {
		return nil
	}
	if err := h.LinkSetBrProxyArpWiFi(link, true); err != nil {
		return fmt.Errorf("have %s answer for permanent neighbours: %w", n.Bridge, err)
	}
	return nil
}

// reachable returns the neighbours of the card's families: a bridge without IPv6 can't have such neighbours.
func (n NIC) reachable(all []Neighbor) []Neighbor {
	return slices.DeleteFunc(slices.Clone(all), func(one Neighbor) bool { return one.Address.Is6() && !n.IPv6.valid() })
}
