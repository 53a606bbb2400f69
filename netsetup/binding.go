package netsetup

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Binding is the way in which a guest's card is connected to the pod's interface.
type Binding string

const (
	// Bridge gives the interface's addresses to the guest. It is the default.
	Bridge Binding = "bridge"
	// Masquerade leaves the addresses to the pod, which forwards connections to the guest. The
	// guest has a private address, the same in all pods.
	Masquerade Binding = "masquerade"
	// ManagedTap is like Bridge on a network without address management: the interface becomes a
	// port of the guest's bridge, and the network's own DHCP server, or one in the pod, gives the
	// guest its addresses.
	ManagedTap Binding = "managedTap"
	// Tap gives the guest a tap or macvtap that a CNI plug-in made in the pod. Nothing else of the
	// pod changes, and the guest's frames pass no filter.
	Tap Binding = "tap"
)

// Port is a port, or a range of ports, of the pod that is forwarded to a masqueraded guest.
type Port struct {
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	Number   uint16 `json:"number"`
	// End is the last port of a range that begins with Number; 0 for one port.
	End uint16 `json:"end,omitempty"`
}

// String returns the port or the range in nft's syntax.
func (p Port) String() string {
	if p.End <= p.Number {
		return strconv.Itoa(int(p.Number))
	}
	return fmt.Sprintf("%d-%d", p.Number, p.End)
}

// The default private networks of masqueraded guests, the same as KubeVirt's.
var (
	privateIPv4 = netip.MustParsePrefix("10.0.2.0/24")
	privateIPv6 = netip.MustParsePrefix("fd10:0:2::/120")
)

// masqueradeMAC is the default address of a masqueraded guest's card. Nothing outside the pod sees
// it, and it stays the same over restarts, so that the guest finds the card that it knows.
var masqueradeMAC = net.HardwareAddr{0x0a, 0x58, 10, 0, 2, 2}

// gatewayMAC is the address of a masqueraded guest's gateway. Nothing outside the pod sees it.
var gatewayMAC = MAC{0x0a, 0x58, 10, 0, 2, 1}

// masqueraded reports whether the card has the binding Masquerade.
func (n NIC) masqueraded() bool { return n.Binding == Masquerade }

// plugged reports whether the card is on a device that a CNI plug-in made. It has no bridge.
func (n NIC) plugged() bool { return n.Binding == Tap }

// bridged reports whether the pod's interface is a port of the card's bridge.
func (n NIC) bridged() bool { return !n.masqueraded() && !n.plugged() }

// unserved reports whether the guest gets its addresses from a network binding plug-in, and not from
// the card's own DHCP server.
func (n NIC) unserved() bool { return n.plugged() || n.Binding == ManagedTap }

// managed reports whether the guest's addresses are known. A network without address management
// leaves them to its guests.
func (n NIC) managed() bool { return n.IPv4.valid() || n.IPv6.valid() }

func (a Addressing) valid() bool { return a.Address.IsValid() }

// checkBinding returns an error for settings that contradict the binding.
func (i Interface) checkBinding() error {
	switch i.Binding {
	case "", Bridge:
		if len(i.Ports) > 0 || i.IPv4.IsValid() || i.IPv6.IsValid() {
			return fmt.Errorf("interface %s: ports and private networks need the binding masquerade", i.Name)
		}
	case ManagedTap, Tap:
		if len(i.Ports) > 0 || i.IPv4.IsValid() || i.IPv6.IsValid() || i.DHCP.given() {
			return fmt.Errorf("interface %s: ports, private networks and DHCP options do not go with the binding %s", i.Name, i.Binding)
		}
	case Masquerade:
	default:
		return fmt.Errorf("interface %s: unknown binding %q", i.Name, i.Binding)
	}
	for _, p := range i.Ports {
		if p.Protocol != "tcp" && p.Protocol != "udp" || p.Number == 0 || p.End != 0 && p.End < p.Number {
			return fmt.Errorf("interface %s: unsupported port %s %d-%d", i.Name, p.Protocol, p.Number, p.End)
		}
	}
	return nil
}

// setPrivate gives a masqueraded guest an address of each address family that the pod has.
func (n *NIC) setPrivate(wanted Interface) (err error) {
	n.Ports = wanted.Ports
	if len(n.Original.globalAddresses(netip.Addr.Is4)) > 0 {
		if n.IPv4, err = n.private(wanted.IPv4, privateIPv4); err != nil {
			return err
		}
	}
	if len(n.Original.globalAddresses(netip.Addr.Is6)) > 0 {
		n.IPv6, err = n.private(wanted.IPv6, privateIPv6)
	}
	return err
}

// private returns the pod's and the guest's address in a private network: the first two after the
// network's own.
func (n *NIC) private(network, usual netip.Prefix) (Addressing, error) {
	if !network.IsValid() {
		network = usual
	}
	network = network.Masked()
	length := usual.Addr().BitLen()
	if network.Addr().BitLen() != length || network.Bits() < shortestPrivate(length) || network.Bits() > length-2 {
		return Addressing{}, fmt.Errorf("%w: the guest's private network %s must be one like %s, of %d to %d bits",
			ErrUnsuited, network, usual, shortestPrivate(length), length-2)
	}
	for _, r := range n.Original.Routes {
		if r.Destination.Bits() > 0 && r.Destination.Overlaps(network) {
			return Addressing{}, fmt.Errorf("%w: the guest's private network %s overlaps %s, which the pod reaches "+
				"by %s: choose another one", ErrUnsuited, network, r.Destination, n.Interface)
		}
	}
	pod := network.Addr().Next()
	return Addressing{
		Address: netip.PrefixFrom(pod.Next(), network.Bits()),
		Gateway: pod,
		Pod:     netip.PrefixFrom(pod, network.Bits()),
	}, nil
}

// shortestPrivate is the least length of a private network's prefix. The one for IPv6 is dnsmasq's.
func shortestPrivate(length int) int {
	if length == 128 {
		return 64
	}
	return 8
}
