package netsetup

import (
	"net/netip"
	"slices"
)

// GuestAddrs are where a process in the pod's namespace reaches the guest, the address of its
// first card first. They are private ones for a masqueraded guest.
func (p Plan) GuestAddrs() []netip.Addr {
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

// Served says whether a card needs dnsmasq: on networks that give no addresses none does.
func (p Plan) Served() bool { return slices.ContainsFunc(p.NICs, NIC.managed) }

// PodIPs are where others reach the guest's ports: the addresses that CNI gave the pod, on the
// first card's network.
func (p Plan) PodIPs() []netip.Addr {
	if len(p.NICs) == 0 {
		return nil
	}
	n := p.NICs[0]
	if n.bridged() {
		return Plan{NICs: []NIC{n}}.GuestAddrs()
	}
	var all []netip.Addr
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		all = append(all, n.Original.globalAddresses(family)...)
	}
	return all
}
