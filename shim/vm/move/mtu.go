package move

import (
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// A guest's cards keep their MTUs until the guest starts again: it has seen them, and libvirt refuses others.

// leastMTU and mostMTU bound the MTU of a card, in bytes. The least is that of IPv4 (RFC 791).
const (
	leastMTU = 68
	mostMTU  = 65535
)

// mtus returns the MTUs of a VM's cards, by the cards' names.
func mtus(r record.Container) map[string]int {
	all := map[string]int{}
	for _, n := range r.NICs() {
		if n.MTU > 0 {
			all[n.Card] = n.MTU
		}
	}
	return all
}

// keepMTUs gives the cards of a guest that comes the MTUs that it has. Behind masquerade the pod routes, and fragments or
// refuses what its network does not carry. Any other network would lose such packets without a word. A source of an
// older version names none.
func keepMTUs(r record.Container, theirs map[string]int) (record.Container, error) {
	if r.Network == nil {
		return r, nil
	}
	network := *r.Network
	network.NICs = slices.Clone(network.NICs)
	for i := range network.NICs {
		n := &network.NICs[i]
		switch has := theirs[n.Card]; {
		case has == 0 || has == n.MTU:
		case has < leastMTU || has > mostMTU:
			return r, fmt.Errorf("%w: network card %q has an MTU of %d bytes on the source", vmerrors.ErrInvalid, n.Card, has)
		case has > n.MTU && n.Binding != netsetup.Masquerade:
			return r, fmt.Errorf("%w: network card %q has an MTU of %d bytes, and its network carries %d here: restart the VM, or raise the network's MTU",
				vmerrors.ErrInvalid, n.Card, has, n.MTU)
		default:
			n.MTU = has
		}
	}
	r.Network = &network
	return r, nil
}
