package netsetup

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// podInterface is the interface that CNI gives each pod. Others are secondary networks.
const podInterface = "eth0"

// maxNICs is the maximum number of a guest's cards.
const maxNICs = 8

// NIC is one card of the guest and the devices that carry its frames.
type NIC struct {
	// Card is the caller's name of the card, by which the NIC is found when others come
	// or go.
	Card string `json:"card,omitempty"`
	// Binding is Bridge if empty.
	Binding Binding `json:"binding,omitempty"`
	// Interface is the pod's. Bridge and Tap are created for the VM. A card with the binding Tap has
	// no bridge, and its Tap only has the name that libvirt opens: QEMU gets Device in its place.
	Interface string `json:"interface"`
	Bridge    string `json:"bridge"`
	Tap       string `json:"tap"`
	// Device is the tap or macvtap of a CNI plug-in in the pod.
	Device string `json:"device,omitempty"`

	// GuestMAC is the address of the guest's card. PodMAC is the interface's while the VM exists,
	// OriginalMAC the one that CNI gave it. BridgeMAC is the bridge's, which is the guest's router.
	GuestMAC    MAC `json:"guestMAC"`
	PodMAC      MAC `json:"podMAC"`
	OriginalMAC MAC `json:"originalMAC"`
	BridgeMAC   MAC `json:"bridgeMAC"`

	// SharedMAC means that the interface has the same address as the guest: a macvlan receives
	// frames for its own address alone.
	SharedMAC bool `json:"sharedMAC,omitempty"`

	// MTU is the interface's, in bytes.
	MTU int `json:"mtu"`
	// Queues is the number of the tap's queues; 0 means one.
	Queues int `json:"queues,omitempty"`
	// IPv4 and IPv6 are the guest's settings.
	IPv4 Addressing `json:"ipv4"`
	IPv6 Addressing `json:"ipv6,omitzero"`
	// Ports are forwarded to a masqueraded guest; none means all.
	Ports []Port `json:"ports,omitempty"`
	// Reserved is a TCP port that is not forwarded; 0 for none.
	Reserved uint16 `json:"reserved,omitempty"`

	// DHCP are further options of DHCPv4 for the guest.
	DHCP DHCPOptions `json:"dhcp,omitzero"`

	// Original is the interface as CNI made it.
	Original Snapshot `json:"original"`
}

// Addressing has the guest's settings of one address family on one card.
type Addressing struct {
	// Address is the guest's, with the length of its subnet. It is invalid if there is none.
	Address netip.Prefix `json:"address"`
	// Gateway is the default route's. It is invalid if there is none, and may be outside
	// the subnet. For a bridged guest's IPv6, Gateway and Routes are those of the pod, which is
	// the guest's router.
	Gateway netip.Addr `json:"gateway"`
	// Routes are the guest's other routes, without the one to its own subnet.
	Routes []Route `json:"routes,omitempty"`
	// Pod is the pod's own address on the card's bridge.
	Pod netip.Prefix `json:"pod,omitzero"`
}

// Route is a route of the guest. A gateway that is not valid means that the destination is
// on the link.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
}

// newNIC returns the VM's card number i with the names of its devices.
func newNIC(id string, i int, wanted Interface) NIC {
	n := NIC{Card: wanted.Card, Binding: wanted.Binding, Queues: wanted.Queues, Reserved: wanted.Reserved, DHCP: wanted.DHCP, Interface: wanted.Name, Bridge: bridgeName(i), Tap: tapName(id, i)}
	if n.Interface == "" {
		n.Interface = podInterface
	}
	if n.Binding == "" {
		n.Binding = Bridge
	}
	if n.plugged() {
		n.Bridge = ""
	}
	return n
}

// read sets the addresses, the MTU and the snapshot from the pod's namespace.
func (n *NIC) read(h *netlink.Handle, id string, wanted Interface) error {
	if n.plugged() {
		return n.readPlugged(h, wanted)
	}
	if bridge, err := findLink(h, n.Bridge); err != nil {
		return err
	} else if bridge != nil {
		return fmt.Errorf("bridge %s exists already: %w", n.Bridge, ErrInUse)
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
		return fmt.Errorf("%w: interface %s is not an Ethernet device", ErrUnsuited, n.Interface)
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
	if !n.managed() && !n.unserved() && (n.masqueraded() || n.Interface == podInterface) {
		return fmt.Errorf("interface %s: %w, but its guest needs one: add ipam to the CNI config",
			n.Interface, ErrNoAddress)
	}
	return nil
}

// absent returns the error for a pod without the card's interface.
func (n *NIC) absent() error {
	if n.Interface == podInterface {
		return fmt.Errorf("no interface %s: %w", n.Interface, ErrNoAddress)
	}
	return fmt.Errorf("%w: no interface %s: check that the cluster has Multus, and that the pod's annotation "+
		"for Multus names the same networks as the VMI, in the same order", ErrUnsuited, n.Interface)
}

// setMACs decides the MAC addresses. The interface gets a new one if the guest takes its old one.
func (n *NIC) setMACs(id string, own, guest net.HardwareAddr) error {
	switch {
	case guest != nil:
	case n.masqueraded():
		guest = masqueradeMAC
	default:
		guest = own
	}
	if len(guest) != 6 || guest[0]&1 != 0 || MAC(guest).isZero() {
		return fmt.Errorf("%s is not an address of a network card: it must be unicast", guest)
	}
	n.OriginalMAC, n.PodMAC, n.GuestMAC = MAC(own), MAC(own), MAC(guest)
	switch {
	case n.SharedMAC:
		n.PodMAC = MAC(guest)
	case n.bridged() && guest.String() == own.String():
		n.PodMAC = localMAC(id, "interface "+n.Interface)
	}
	n.BridgeMAC = n.routerMAC()
	if n.GuestMAC.equal(net.HardwareAddr(n.BridgeMAC)) {
		return fmt.Errorf("%s is the address of the guest's gateway: choose another one", guest)
	}
	return nil
}

// routerMAC returns the address of the guest's router, which the guest keeps in its tables when it
// moves to another pod. So it depends on the guest alone. On a network that other pods share, it
// must also be unique, as the guest's own address is.
func (n *NIC) routerMAC() MAC {
	if n.masqueraded() {
		return gatewayMAC
	}
	return localMAC(n.GuestMAC.String(), "router")
}

// setAddresses decides which of the interface's addresses and routes the guest gets.
func (n *NIC) setAddresses(wanted Interface) error {
	switch {
	case n.unserved():
		return nil
	case n.masqueraded():
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
		return fmt.Errorf("interface %s has %d routes, but DHCP carries at most %d to a guest: "+
			"merge some in the CNI config", n.Interface, len(routes), maxClasslessRoutes)
	}
	return nil
}

// The least MTUs that a link must have (RFC 791, RFC 8200).
const (
	leastMTU4 = 68
	leastMTU6 = 1280
)

// guestMTU returns the MTU that the guest learns for a family: the card's, or a smaller one of the pod's routes.
func (n NIC) guestMTU(family func(netip.Addr) bool) int {
	least := leastMTU4
	if family(netip.IPv6Unspecified()) {
		least = leastMTU6
	}
	if mtu := n.Original.routeMTU(family); mtu >= least {
		return min(n.MTU, mtu)
	}
	return n.MTU
}

// routers returns the link-local addresses that the guest must not use as its own.
func (n NIC) routers() []netip.Addr {
	all := []netip.Addr{linkLocal(n.BridgeMAC)}
	if n.IPv6.Gateway.IsLinkLocalUnicast() {
		all = append(all, n.IPv6.Gateway)
	}
	return all
}

// linkLocal returns the link-local address of a MAC address (RFC 4291, appendix A).
func linkLocal(mac MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}
