package netsetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// bridgeName is the bridge's name in each pod: namespaces keep them apart.
const bridgeName = "nvbr0"

// Pod is what netsetup must know of a pod.
type Pod struct {
	// Netns is the path of the pod's network namespace.
	Netns string
	// Interface is the pod's interface on its network, "eth0" if empty.
	Interface string
	// Hostname becomes the guest's by DHCP, up to its first dot. May be empty.
	Hostname string
	// Nameservers and Searches are the pod's DNS settings. DHCPv4 carries the IPv4 servers.
	Nameservers []netip.Addr
	Searches    []string
	// MAC is the guest's address; nil gives it the interface's own.
	MAC net.HardwareAddr
}

// Plan is what shall stand for one machine, and all that Undo needs. It is a plain value
// that survives JSON.
type Plan struct {
	ID        string `json:"id"`
	Netns     string `json:"netns"`
	Interface string `json:"interface"`
	Bridge    string `json:"bridge"`
	Tap       string `json:"tap"`

	// GuestMAC is the guest's. PodMAC is the interface's from now on, OriginalMAC what
	// CNI gave it. BridgeMAC marks the bridge as this Plan's.
	GuestMAC    MAC `json:"guestMAC"`
	PodMAC      MAC `json:"podMAC"`
	OriginalMAC MAC `json:"originalMAC"`
	BridgeMAC   MAC `json:"bridgeMAC"`

	// MTU is the interface's, in bytes.
	MTU int `json:"mtu"`
	// Address is the guest's, with its subnet's length.
	Address netip.Prefix `json:"address"`
	// Gateway is the default route's; invalid where there is none. It may be outside
	// of the subnet.
	Gateway netip.Addr `json:"gateway"`
	// Routes are the guest's other routes, without the one to its own subnet.
	Routes      []Route      `json:"routes,omitempty"`
	Hostname    string       `json:"hostname,omitempty"`
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	Searches    []string     `json:"searches,omitempty"`

	// Original is the interface as CNI made it.
	Original Snapshot `json:"original"`
}

// Route is an IPv4 route of the guest. A gateway that is not valid means that the
// destination is on the link.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
}

// Plan reads a pod's namespace and decides names and addresses for the machine id (a
// container's id: hex digits). It changes nothing. The error is ErrNoAddress for a pod
// without an IPv4 address, ErrInUse where another machine has the interface.
func (s *Setup) Plan(ctx context.Context, id string, pod Pod) (Plan, error) {
	p := Plan{ID: id, Netns: pod.Netns, Interface: pod.Interface, Bridge: bridgeName}
	if p.Interface == "" {
		p.Interface = "eth0"
	}
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	p.Tap = tapName(id)
	if err := p.setNames(pod); err != nil {
		return Plan{}, err
	}
	if err := ctx.Err(); err != nil {
		return Plan{}, err
	}
	if own, err := isCurrent(p.Netns); err != nil {
		return Plan{}, fmt.Errorf("plan pod network: %w", err)
	} else if own {
		return Plan{}, fmt.Errorf("network namespace %s is the node's own: "+
			"a virtual machine needs a pod with its own network (no hostNetwork)", p.Netns)
	}
	err := withinLink(p.Netns, func(h *netlink.Handle) error { return p.read(h, pod.MAC) })
	if err != nil {
		return Plan{}, fmt.Errorf("plan network of pod %s: %w", p.Netns, err)
	}
	return p, nil
}

// read fills in what the namespace says.
func (p *Plan) read(h *netlink.Handle, guest net.HardwareAddr) error {
	if bridge, err := findLink(h, p.Bridge); err != nil {
		return err
	} else if bridge != nil {
		return fmt.Errorf("bridge %s is there already: %w", p.Bridge, ErrInUse)
	}
	link, err := findLink(h, p.Interface)
	if err != nil {
		return err
	}
	if link == nil {
		return fmt.Errorf("no interface %s: %w", p.Interface, ErrNoAddress)
	}
	attrs := link.Attrs()
	if attrs.MasterIndex != 0 {
		return fmt.Errorf("interface %s is a port of another device", p.Interface)
	}
	if len(attrs.HardwareAddr) != 6 {
		return fmt.Errorf("interface %s is no Ethernet device", p.Interface)
	}
	if err := p.setMACs(attrs.HardwareAddr, guest); err != nil {
		return err
	}
	p.MTU = attrs.MTU
	if p.Original, err = readSnapshot(h, link); err != nil {
		return err
	}
	return p.setAddresses()
}

// setMACs gives the interface a new address only where the guest takes its own.
func (p *Plan) setMACs(own, guest net.HardwareAddr) error {
	if guest == nil {
		guest = own
	}
	if len(guest) != 6 || guest[0]&1 != 0 || MAC(guest).isZero() {
		return fmt.Errorf("%s is no address for a network card: it must be unicast", guest)
	}
	p.OriginalMAC, p.PodMAC, p.GuestMAC = MAC(own), MAC(own), MAC(guest)
	if guest.String() == own.String() {
		p.PodMAC = localMAC(p.ID, "interface")
	}
	p.BridgeMAC = localMAC(p.ID, "bridge")
	return nil
}

// setAddresses decides what of the interface's addresses and routes the guest gets.
func (p *Plan) setAddresses() error {
	address, ok := p.Original.firstIPv4()
	if !ok {
		return fmt.Errorf("interface %s: %w, and its guest needs one: have the CNI config give it (ipam)",
			p.Interface, ErrNoAddress)
	}
	p.Address = address
	p.Gateway, p.Routes = p.Original.guestRoutes(address)
	if len(classlessRoutes(*p)) > maxClasslessRoutes {
		return fmt.Errorf("interface %s has %d routes, of which DHCP carries %d to a guest: "+
			"join some in the CNI config", p.Interface, len(classlessRoutes(*p)),
			maxClasslessRoutes)
	}
	return nil
}

// check refuses names that could lead elsewhere: a Plan has been on disk.
func (p *Plan) check() error {
	return errors.Join(checkID(p.ID), checkInterface(p.Interface), checkNetns(p.Netns))
}
