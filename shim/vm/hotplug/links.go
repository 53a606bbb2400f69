package hotplug

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// link sets the links of all network cards. The record has the new state first: a restart of the VM, and
// the next order, begin from it.
func (h *Hotplugs) link(ctx context.Context, v *table.VM, a order.Links) (order.Links, error) {
	r, unlock, err := h.lock(ctx, v)
	if err != nil {
		return order.Links{}, err
	}
	defer unlock()
	cards, err := linked(r.Interfaces(), a.Down)
	if err != nil {
		return order.Links{}, err
	}
	if !slices.EqualFunc(cards, r.Interfaces(), func(a, b vmspec.Interface) bool { return a.Unplugged == b.Unplugged }) {
		r.Cards = slices.Clone(r.Cards)
		for i := range r.Cards {
			r.Cards[i].Card = cards[len(r.Spec.Interfaces)+i]
		}
		r.Spec.Interfaces = cards[:len(r.Spec.Interfaces):len(r.Spec.Interfaces)]
		if err := h.o.Table.Put(v, r); err != nil {
			return order.Links{}, err
		}
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := h.o.Cards.SetLinks(ctx, r.Domain.UUID, cards); err != nil {
		return order.Links{}, err
	}
	answer := order.Links{Down: []string{}}
	for _, c := range cards {
		if c.Unplugged {
			answer.Down = append(answer.Down, c.Name)
		}
	}
	table.Logger(h.o.Logger, r).Info("the links of the VM's network cards are set", "down", answer.Down)
	return answer, nil
}

// linked returns the cards, of which those of the names have no link.
func linked(cards []vmspec.Interface, down []string) ([]vmspec.Interface, error) {
	cards = slices.Clone(cards) // others read the record
	for i := range cards {
		cards[i].Unplugged = slices.Contains(down, cards[i].Name)
	}
	for _, name := range down {
		if !slices.ContainsFunc(cards, func(c vmspec.Interface) bool { return c.Name == name }) {
			return nil, fmt.Errorf("%w: the VM has no network card %.80q whose link the node can change", vmerrors.ErrInvalid, name)
		}
	}
	return cards, nil
}
