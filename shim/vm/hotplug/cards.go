package hotplug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Cards attaches network cards to running domains, and sets their links; [domain.Hotplug].
type Cards interface {
	SetLinks(ctx context.Context, uuid string, cards []vmspec.Interface) error
	AttachCard(ctx context.Context, uuid string, card vmspec.Interface, n domain.NIC) error
	RequestCard(ctx context.Context, uuid, name string) error
	Cards(ctx context.Context, uuid string) (map[string]bool, error)
}

// Networks connects cards to the networks of attachment pods; package lifecycle's Cards.
type Networks interface {
	// Plan plans the network of a card in the namespace of a sandbox. The container's ID is the plan's.
	Plan(ctx context.Context, r record.Container, card vmspec.Interface, container, sandbox string) (netsetup.Plan, error)
	// Make makes the network, and the tap for QEMU, and serves the guest its addresses.
	Make(ctx context.Context, r record.Container, p netsetup.Plan) error
	// Connect connects the tap, which QEMU has open.
	Connect(ctx context.Context, p netsetup.Plan) error
	// Keep goes on to serve the guest its addresses while the VM has the card.
	Keep(v *table.VM, p netsetup.Plan)
	// Undo removes a card's network, but for what other cards of the VM use.
	Undo(ctx context.Context, r record.Container, c record.PluggedCard) error
}

// attachCard attaches a network card. If it fails, the VM has no such card, or the node goes on to find
// that out.
func (h *Hotplugs) attachCard(ctx context.Context, v *table.VM, a order.CardAttachment) (order.Card, error) {
	if len(a.Interface) > maxOrder {
		return order.Card{}, fmt.Errorf("%w: the interface's description has %d bytes, the limit is %d", vmerrors.ErrInvalid, len(a.Interface), maxOrder)
	}
	sandbox, err := attachment.Sandbox(ctx, h.o.Pods, v.Record(), a.Container)
	if err != nil {
		return order.Card{}, err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return order.Card{}, err
	}
	defer unlock()
	r := v.Record()
	card, err := vmspec.HotplugCard(a.Interface, a.Device, queues(r, a))
	if err != nil {
		return order.Card{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if i := r.FindCard(card.Name); i >= 0 {
		return againCard(r, r.Cards[i], a.Container)
	}
	if err := h.checkCard(v, r, card, a.Container); err != nil {
		return order.Card{}, err
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	plan, err := h.o.Networks.Plan(within, r, card, a.Container, sandbox)
	if err != nil {
		return order.Card{}, err
	}
	c := record.PluggedCard{State: record.Attaching, Card: card, Container: a.Container, Network: plan}
	r = r.WithCard(c)
	if err := h.o.Table.Put(v, r); err != nil {
		return order.Card{}, err
	}
	if err := h.plugCard(within, r, c); err != nil {
		return order.Card{}, h.undoCard(ctx, v, c, err)
	}
	c.State = record.Attached
	if err := h.o.Table.Put(v, r.WithCard(c)); err != nil {
		h.settleLater(v) // the card is attached, which libvirt says, too
		return order.Card{}, err
	}
	h.o.Networks.Keep(v, plan)
	h.o.Conditions.Update(v)
	h.o.Agents.LookAgain(v)
	answer := aboutCard(v.Record(), card.Name)
	table.Logger(h.o.Logger, r).Info("a network card is attached to the VM", "card", card.Name, "mac", answer.MAC)
	return answer, nil
}

// queues returns how many queues a card gets, as one that the VM starts with.
func queues(r record.Container, a order.CardAttachment) uint32 {
	if !a.Multiqueue {
		return 0
	}
	return r.Spec.CPU.Sockets * r.Spec.CPU.Cores * r.Spec.CPU.Threads
}

// againCard answers an order for a card that the VM has.
func againCard(r record.Container, c record.PluggedCard, container string) (order.Card, error) {
	switch {
	case c.State == record.Detaching:
		return order.Card{}, fmt.Errorf("%w: network card %q is being detached; wait until it is gone", vmerrors.ErrState, c.Card.Name)
	case c.Container != container:
		return order.Card{}, fmt.Errorf("network card %q of container %s: %w", c.Card.Name, c.Container, vmerrors.ErrExists)
	}
	return aboutCard(r, c.Card.Name), nil
}

// checkCard refuses a network card that the VM can't get.
func (h *Hotplugs) checkCard(v *table.VM, r record.Container, card vmspec.Interface, container string) error {
	if err := h.steady(v, r); err != nil {
		return err
	}
	if len(r.Cards) >= order.MaxCards {
		return fmt.Errorf("%w: a running VM gets at most %d network cards", vmerrors.ErrRange, order.MaxCards)
	}
	if card.Model == "virtio" && r.Spec.Transitional {
		return fmt.Errorf("%w: the VM has useVirtioTransitional, and gets network cards of other models alone", vmerrors.ErrState)
	}
	for _, other := range r.Interfaces() {
		switch {
		case other.Name == card.Name:
			return fmt.Errorf("network card %q: %w", card.Name, vmerrors.ErrExists)
		case card.ACPIIndex > 0 && other.ACPIIndex == card.ACPIIndex:
			return fmt.Errorf("%w: network card %q has the acpiIndex %d, too", vmerrors.ErrInvalid, other.Name, card.ACPIIndex)
		}
	}
	if slices.ContainsFunc(r.Cards, func(c record.PluggedCard) bool { return c.Container == container }) {
		return fmt.Errorf("%w: container %s has the network of another card: each card has its own attachment pod", vmerrors.ErrInvalid, container)
	}
	return nil
}

// plugCard gives a network card to QEMU, and connects it.
func (h *Hotplugs) plugCard(ctx context.Context, r record.Container, c record.PluggedCard) error {
	if err := h.o.Networks.Make(ctx, r, c.Network); err != nil {
		return err
	}
	if err := h.o.Cards.AttachCard(ctx, r.Domain.UUID, c.Card, nicOf(c)); err != nil {
		return err
	}
	return h.o.Networks.Connect(ctx, c.Network)
}

// nicOf returns the node's side of a card.
func nicOf(c record.PluggedCard) domain.NIC {
	one := domain.NIC{Name: c.Card.Name}
	for _, n := range c.Network.NICs {
		one.Tap, one.MAC, one.MTU = n.Tap, net.HardwareAddr(n.GuestMAC), n.MTU
	}
	return one
}

// undoCard undoes an attachment that failed, or has that done later. The caller has the VM's turn. A card that
// QEMU has, but that is not connected, goes: the next order attaches it again.
func (h *Hotplugs) undoCard(ctx context.Context, v *table.VM, c record.PluggedCard, failed error) error {
	ctx, cancel := background.AtMost(context.WithoutCancel(ctx), patience)
	defer cancel()
	settled, err := h.settleCard(ctx, v, c)
	if err != nil {
		h.settleLater(v)
		return errors.Join(failed, fmt.Errorf("undo it, which is tried again: %w", err))
	}
	if !settled || v.Record().FindCard(c.Card.Name) >= 0 {
		h.settleLater(v)
	}
	return failed
}
