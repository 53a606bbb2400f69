package netsetup

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// podInterface is the one that CNI gives each pod; others are secondary networks.
const podInterface = "eth0"

// maxNICs bounds the cards of a guest.
const maxNICs = 8

// NIC is one card of the guest and what carries its frames.
type NIC struct {
	// Card is the caller's name of the card, by which the NIC is found when others come
	// or go.
	Card string `json:"card,omitempty"`
	// Binding is Bridge if empty, as in records of version 1.
	Binding Binding `json:"binding,omitempty"`
	// Interface is the pod's, Bridge and Tap are made for the machine.
	Interface string `json:"interface"`
	Bridge    string `json:"bridge"`
	Tap       string `json:"tap"`

	// GuestMAC is the guest's. PodMAC is the interface's from now on, OriginalMAC what
	// CNI gave it. BridgeMAC marks the bridge as this Plan's.
	GuestMAC    MAC `json:"guestMAC"`
	PodMAC      MAC `json:"podMAC"`
	OriginalMAC MAC `json:"originalMAC"`
	BridgeMAC   MAC `json:"bridgeMAC"`

	// SharedMAC says that the interface keeps the guest's address: a macvlan gets frames for its
	// own alone.
	SharedMAC bool `json:"sharedMAC,omitempty"`

	// MTU is the interface's, in bytes.
	MTU int `json:"mtu"`
	// Queues are the tap's; 0 means one.
	Queues int `json:"queues,omitempty"`
	// IPv4 and IPv6 are what the guest gets.
	IPv4 Addressing `json:"ipv4"`
	IPv6 Addressing `json:"ipv6,omitzero"`
	// Ports are passed on to a masqueraded guest; none means all.
	Ports []Port `json:"ports,omitempty"`

	// Original is the interface as CNI made it.
	Original Snapshot `json:"original"`
}

// Addressing is what a guest has of one address family on one card.
type Addressing struct {
	// Address is the guest's, with its subnet's length; invalid where there is none.
	Address netip.Prefix `json:"address"`
	// Gateway is the default route's; invalid where there is none. It may be outside
	// of the subnet. For a bridged guest's IPv6, Gateway and Routes are the pod's, which is
	// its router.
	Gateway netip.Addr `json:"gateway"`
	// Routes are the guest's other routes, without the one to its own subnet.
	Routes []Route `json:"routes,omitempty"`
	// Pod is the pod's own end of the card's bridge.
	Pod netip.Prefix `json:"pod,omitzero"`
}

// Route is a route of the guest. A gateway that is not valid means that the destination is
// on the link.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
}

// newNIC names what the machine's card number i needs.
func newNIC(id string, i int, wanted Interface) NIC {
	n := NIC{Card: wanted.Card, Binding: wanted.Binding, Queues: wanted.Queues, Interface: wanted.Name, Bridge: bridgeName(i), Tap: tapName(id, i)}
	if n.Interface == "" {
		n.Interface = podInterface
	}
	if n.Binding == "" {
		n.Binding = Bridge
	}
	return n
}

// read fills in what the pod's namespace says.
func (n *NIC) read(h *netlink.Handle, id string, wanted Interface) error {
	if bridge, err := findLink(h, n.Bridge); err != nil {
		return err
	} else if bridge != nil {
		return fmt.Errorf("bridge %s is there already: %w", n.Bridge, ErrInUse)
	}
	link, err := findLink(h, n.Interface)
	if err != nil {
		return err
	}
	if link == nil {
		return n.absent()
	}
	attrs := link.Attrs()
	if attrs.MasterIndex != 0 {
		return fmt.Errorf("%w: interface %s is a port of another device", ErrUnsuited, n.Interface)
	}
	if len(attrs.HardwareAddr) != 6 {
		return fmt.Errorf("%w: interface %s is no Ethernet device", ErrUnsuited, n.Interface)
	}
	n.SharedMAC = n.bridged() && link.Type() == "macvlan"
	if err := n.setMACs(id, attrs.HardwareAddr, wanted.MAC); err != nil {
		return err
	}
	n.MTU = attrs.MTU
	if n.Original, err = readSnapshot(h, link); err != nil {
		return err
	}
	if err := n.setAddresses(wanted); err != nil {
		return err
	}
	if !n.managed() && (n.masqueraded() || n.Interface == podInterface) {
		return fmt.Errorf("interface %s: %w, and its guest needs one: have the CNI config give it (ipam)",
			n.Interface, ErrNoAddress)
	}
	return nil
}

// absent says that the pod lacks the card's interface.
func (n *NIC) absent() error {
	if n.Interface == podInterface {
		return fmt.Errorf("no interface %s: %w", n.Interface, ErrNoAddress)
	}
	return fmt.Errorf("%w: no interface %s: see whether the cluster has Multus, and have the pod's annotation "+
		"for it name as many networks as the VMI, in the same order", ErrUnsuited, n.Interface)
}

// setMACs gives the interface a new address where the guest takes its own.
func (n *NIC) setMACs(id string, own, guest net.HardwareAddr) error {
	switch {
	case guest != nil:
	case n.masqueraded():
		guest = masqueradeMAC
	default:
		guest = own
	}
	if len(guest) != 6 || guest[0]&1 != 0 || MAC(guest).isZero() {
		return fmt.Errorf("%s is no address for a network card: it must be unicast", guest)
	}
	n.OriginalMAC, n.PodMAC, n.GuestMAC = MAC(own), MAC(own), MAC(guest)
	switch {
	case n.SharedMAC:
		n.PodMAC = MAC(guest)
	case n.bridged() && guest.String() == own.String():
		n.PodMAC = localMAC(id, "interface "+n.Interface)
	}
	n.BridgeMAC = localMAC(id, "bridge "+n.Bridge)
	return nil
}

// setAddresses decides what of the interface's addresses and routes the guest gets.
func (n *NIC) setAddresses(wanted Interface) error {
	if n.masqueraded() {
		return n.setPrivate(wanted)
	}
	if address, ok := n.Original.first(netip.Addr.Is4); ok {
		n.IPv4 = Addressing{Address: address, Pod: linkAddress(n.Bridge)}
		n.IPv4.Gateway, n.IPv4.Routes = n.Original.guestRoutes(address)
	}
	if address, ok := n.Original.first(netip.Addr.Is6); ok {
		n.IPv6 = Addressing{Address: address, Pod: linkNetwork(n.Bridge)}
		n.IPv6.Gateway, n.IPv6.Routes = n.Original.guestRoutes(address)
	}
	if routes := classlessRoutes(n.IPv4); len(routes) > maxClasslessRoutes {
		return fmt.Errorf("interface %s has %d routes, of which DHCP carries %d to a guest: "+
			"join some in the CNI config", n.Interface, len(routes), maxClasslessRoutes)
	}
	return nil
}

// routers are the link-local addresses that the guest may not take for its own.
func (n NIC) routers() []netip.Addr {
	all := []netip.Addr{linkLocal(n.BridgeMAC)}
	if n.IPv6.Gateway.IsLinkLocalUnicast() {
		all = append(all, n.IPv6.Gateway)
	}
	return all
}

// linkLocal is the address that RFC 4291, appendix A, makes of a MAC address.
func linkLocal(mac MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}
