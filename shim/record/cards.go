package record

import (
	"slices"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PluggedCard is a network card that a running VM gets, or one that it started with and loses.
type PluggedCard struct {
	State PlugState        `json:"state"`
	Card  vmspec.Interface `json:"card"`
	// Container is a container of the pod that has the card's network; empty for the VM's own pod.
	Container string `json:"container"`
	// Network is what the shim creates in that pod's network namespace.
	Network netsetup.Plan `json:"network"`
}

// FindCard returns the position of a card in Cards by its name, -1 if there is none.
func (r Container) FindCard(name string) int { return find(r.Cards, name) }

// WithCard returns the record with a card in the state that c says. The record that others
// read stays as it is.
func (r Container) WithCard(c PluggedCard) Container {
	r.Cards = with(r.Cards, c)
	return r
}

// WithoutCard returns the record without a card.
func (r Container) WithoutCard(name string) Container {
	r.Cards = without(r.Cards, name)
	return r
}

// LosingCard returns the record with a card that the VM started with among those that it loses, together with the
// card's part of the network of the VM's pod. The result is false if the VM has not started with such a card.
func (r Container) LosingCard(name string) (Container, bool) {
	i := slices.IndexFunc(r.Spec.Interfaces, func(c vmspec.Interface) bool { return c.Name == name })
	if i < 0 || r.Network == nil {
		return r, false
	}
	rest, own, found := r.Network.Split(name)
	if !found {
		return r, false
	}
	card := r.Spec.Interfaces[i]
	r.Spec.Interfaces = slices.Delete(slices.Clone(r.Spec.Interfaces), i, i+1)
	r.Network = &rest
	if len(rest.NICs) == 0 {
		r.Network = nil
	}
	return r.WithCard(PluggedCard{State: Detaching, Card: card, Network: own}), true
}

// SharesNetwork reports whether a card has a part of the VM's network, whose rest other cards have.
func (r Container) SharesNetwork(c PluggedCard) bool {
	return r.Network != nil && r.Network.ID == c.Network.ID
}

// Interfaces returns all network cards of the VM: those that it started with, and those that it
// has got.
func (r Container) Interfaces() []vmspec.Interface {
	all := slices.Clone(r.Spec.Interfaces)
	for _, c := range r.Cards {
		all = append(all, c.Card)
	}
	return all
}

// Networks returns what the shim created in network namespaces for the VM: in that of its pod, and
// in those of the pods that have the networks of cards which it has got.
func (r Container) Networks() []netsetup.Plan {
	var all []netsetup.Plan
	if r.Network != nil {
		all = append(all, *r.Network)
	}
	for _, c := range r.Cards {
		all = append(all, c.Network)
	}
	return all
}

// NetworkOf returns the network with an ID, false if the VM has none with it.
func (r Container) NetworkOf(id string) (netsetup.Plan, bool) {
	all := r.Networks()
	i := slices.IndexFunc(all, func(p netsetup.Plan) bool { return p.ID == id })
	if i < 0 {
		return netsetup.Plan{}, false
	}
	return all[i], true
}

// NICs returns the node's sides of all network cards of the VM.
func (r Container) NICs() []netsetup.NIC {
	var all []netsetup.NIC
	for _, p := range r.Networks() {
		all = append(all, p.NICs...)
	}
	return all
}

// CardsByMAC returns the names of the VM's network cards by their guests' MAC addresses.
func (r Container) CardsByMAC() map[string]string {
	all := map[string]string{}
	for _, n := range r.NICs() {
		all[n.GuestMAC.String()] = n.Card
	}
	return all
}
