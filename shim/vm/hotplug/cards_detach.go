package hotplug

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// detachCard takes a network card away. It waits for a while until the guest has released it, and the node
// goes on to ask the guest afterwards.
func (h *Hotplugs) detachCard(ctx context.Context, v *table.VM, a order.Name) (order.Card, error) {
	if err := h.beginDetachCard(ctx, v, a.Name); err != nil {
		return order.Card{}, err
	}
	h.settleLater(v)
	return control.Settled(ctx, v, func() (order.Card, bool) {
		c := aboutCard(v.Record(), a.Name)
		return c, c.State == order.None
	}, order.Card{Name: a.Name, State: order.None})
}

// beginDetachCard records that a network card goes, and begins that.
func (h *Hotplugs) beginDetachCard(ctx context.Context, v *table.VM, name string) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	i := r.FindCard(name)
	switch {
	case r.State != record.Running || i < 0 && !started(r, name):
		return nil
	case r.Incoming != "" || h.o.Moves.Moving(v):
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	case i < 0:
		if r, err = h.losing(v, r, name); err == nil {
			err = h.o.Table.Put(v, r)
		}
		if err != nil {
			return err
		}
		i = r.FindCard(name)
	}
	c := r.Cards[i]
	if c.State != record.Detaching {
		c.State = record.Detaching
		if err := h.o.Table.Put(v, r.WithCard(c)); err != nil {
			return err
		}
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if _, err := h.settleCard(ctx, v, c); err != nil {
		table.Logger(h.o.Logger, r).Warn("detaching a network card failed, retrying", "card", name, "error", err)
	}
	return nil
}

// started reports whether a VM has a network card since its start.
func started(r record.Container, name string) bool {
	return slices.ContainsFunc(r.Spec.Interfaces, func(c vmspec.Interface) bool { return c.Name == name })
}

// losing returns the record in which a card that the VM started with is one that it loses.
func (h *Hotplugs) losing(v *table.VM, r record.Container, name string) (record.Container, error) {
	if err := h.steady(v, r); err != nil {
		return r, err
	}
	for _, c := range r.Spec.Interfaces {
		if c.Name == name && (c.OnPodNetwork() || c.Plugin != "" || c.Binding != vmspec.BindingBridge || c.PCI != "" || r.Spec.Transitional) {
			return r, fmt.Errorf("%w: the VM started with network card %q, and keeps it until it ends: it loses only cards with the "+
				"binding bridge, on secondary networks, and none with pciAddress or useVirtioTransitional", vmerrors.ErrState, name)
		}
	}
	next, found := r.LosingCard(name)
	if !found {
		return r, fmt.Errorf("%w: network card %q has no network on the node", vmerrors.ErrState, name)
	}
	return next, nil
}

// statusCard answers with what the node knows of a card.
func (h *Hotplugs) statusCard(_ context.Context, v *table.VM, a order.Name) (order.Card, error) {
	return aboutCard(v.Record(), a.Name), nil
}

// aboutCard returns what a record says of a network card, also of one that the VM started with.
func aboutCard(r record.Container, name string) order.Card {
	answer := order.Card{Name: name, State: order.None}
	switch i := r.FindCard(name); {
	case r.State != record.Running:
		return answer
	case i >= 0:
		answer.State, answer.Container = order.State(r.Cards[i].State), r.Cards[i].Container
	case started(r, name):
		answer.State = order.Attached
	}
	for _, n := range r.NICs() {
		if n.Card != name {
			continue
		}
		answer.MAC = n.GuestMAC.String()
		for _, a := range []netsetup.Addressing{n.IPv4, n.IPv6} {
			if a.Address.IsValid() {
				answer.IPs = append(answer.IPs, a.Address.Addr().String())
			}
		}
	}
	return answer
}

// settleCard makes the record of a network card what libvirt says, and reports whether the card is not on its
// way any more. The caller has the VM's turn.
func (h *Hotplugs) settleCard(ctx context.Context, v *table.VM, c record.PluggedCard) (settled bool, err error) {
	r := v.Record()
	if r.State != record.Running || r.Incoming != "" {
		return true, nil // the end of the VM is the end of its cards
	}
	if i := r.FindCard(c.Card.Name); i < 0 {
		return true, nil
	}
	has, err := h.o.Cards.Cards(ctx, r.Domain.UUID)
	if err != nil {
		return false, err
	}
	if has[c.Card.Name] && c.State == record.Detaching {
		if err := h.o.Cards.RequestCard(ctx, r.Domain.UUID, c.Card.Name); err != nil {
			return false, err
		}
		if has, err = h.o.Cards.Cards(ctx, r.Domain.UUID); err != nil {
			return false, err
		}
	}
	switch {
	case has[c.Card.Name] && c.State == record.Detaching:
		return false, nil
	case has[c.Card.Name] && c.State == record.Attaching:
		return h.finishCard(ctx, v, c)
	case has[c.Card.Name]:
		return true, nil
	}
	if err := h.o.Networks.Undo(ctx, r, c); err != nil {
		return false, err
	}
	if err := h.o.Table.Put(v, v.Record().WithoutCard(c.Card.Name)); err != nil {
		return false, err
	}
	h.o.Conditions.Update(v)
	h.o.Agents.LookAgain(v)
	table.Logger(h.o.Logger, r).Info("a network card is detached from the VM", "card", c.Card.Name)
	return true, nil
}

// finishCard finishes the attachment of a card that QEMU has. If its network is gone, the card goes, too.
func (h *Hotplugs) finishCard(ctx context.Context, v *table.VM, c record.PluggedCard) (settled bool, err error) {
	c.State = record.Attached
	failed := h.o.Networks.Connect(ctx, c.Network)
	if failed != nil {
		c.State = record.Detaching
		table.Logger(h.o.Logger, v.Record()).Warn("connecting a network card of a VM failed, detaching it", "card", c.Card.Name, "error", failed)
	}
	if err := h.o.Table.Put(v, v.Record().WithCard(c)); err != nil {
		return false, err
	}
	if failed == nil {
		h.o.Networks.Keep(v, c.Network)
	}
	return failed == nil, nil
}
