package netsetup

import (
	"net/netip"
	"slices"
)

// GuestAddresses returns the guest's addresses, in the order of its cards, at which a process in the
// pod's namespace reaches it. A masqueraded guest's are private.
func (p Plan) GuestAddresses() []netip.Addr {
	var all []netip.Addr
	for _, n := range p.NICs {
		for _, a := range []Addressing{n.IPv4, n.IPv6} {
			if a.valid() {
				all = append(all, a.Address.Addr())
			}
		}
	}
	return all
}

// Served reports whether the VM needs dnsmasq. On networks without address management it does not.
func (p Plan) Served() bool { return slices.ContainsFunc(p.NICs, NIC.managed) }

// PodIPs returns the addresses at which the guest's ports are reachable from outside the pod: those
// that CNI gave the interface of the first card.
func (p Plan) PodIPs() []netip.Addr {
	if len(p.NICs) == 0 {
		return nil
	}
	n := p.NICs[0]
	if n.bridged() && !n.unserved() {
		return Plan{NICs: []NIC{n}}.GuestAddresses()
	}
	var all []netip.Addr
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		all = append(all, n.Original.globalAddresses(family)...)
	}
	return all
}
