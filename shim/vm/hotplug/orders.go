package hotplug

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Controls returns the names of the machine controls of disks and network cards.
func Controls() []string {
	return []string{order.Attach, order.Detach, order.Status, order.Grow, order.Link, order.CardAttach, order.CardDetach, order.CardStatus}
}

// Do carries out a machine control with its argument, and returns its answer.
func (h *Hotplugs) Do(ctx context.Context, v *table.VM, name, argument string) ([]byte, error) {
	switch name {
	case order.Attach:
		return answer(ctx, v, argument, h.attach)
	case order.Detach:
		return answer(ctx, v, argument, h.detach)
	case order.Grow:
		return answer(ctx, v, argument, h.grow)
	case order.Status:
		return answer(ctx, v, argument, func(_ context.Context, v *table.VM, a order.Name) (order.Disk, error) {
			return about(v.Record(), a.Name), nil
		})
	case order.Link:
		return control.Answer(ctx, v, argument, h.link)
	case order.CardAttach:
		return control.Answer(ctx, v, argument, h.attachCard)
	case order.CardDetach:
		return control.Answer(ctx, v, argument, named(h.detachCard))
	case order.CardStatus:
		return control.Answer(ctx, v, argument, named(h.statusCard))
	}
	return nil, fmt.Errorf("%w: there is no control %q of disks", vmerrors.ErrInvalid, name)
}

// lock locks a VM whose guest can be changed, and returns its record. Unless it returns an error, the caller must
// call unlock.
func (h *Hotplugs) lock(ctx context.Context, v *table.VM) (r record.Container, unlock func(), err error) {
	unlock, err = v.Lock(ctx)
	if err != nil {
		return record.Container{}, nil, err
	}
	r = v.Record()
	if err := h.steady(v, r); err != nil {
		unlock()
		return record.Container{}, nil, err
	}
	return r, unlock, nil
}

// steady returns an error unless a VM's guest runs, stays on the node, and is not being saved.
func (h *Hotplugs) steady(v *table.VM, r record.Container) error {
	switch {
	case r.State != record.Running || r.Incoming != "":
		return fmt.Errorf("%w: no guest runs in container %q", vmerrors.ErrState, r.ID)
	case h.o.Moves.Moving(v):
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	case r.Saving != nil:
		return fmt.Errorf("%w: the guest is paused while its memory is saved", vmerrors.ErrState)
	}
	return nil
}

// answer is [control.Answer] for an order about a disk, whose name it checks.
func answer[A any](ctx context.Context, v *table.VM, argument string, do func(context.Context, *table.VM, A) (order.Disk, error)) ([]byte, error) {
	return control.Answer(ctx, v, argument, func(ctx context.Context, v *table.VM, a A) (order.Disk, error) {
		if n, ok := any(a).(order.Name); ok && len(validation.IsDNS1123Label(n.Name)) > 0 {
			return order.Disk{}, fmt.Errorf("%w: %.80q is not the name of a disk", vmerrors.ErrInvalid, n.Name)
		}
		return do(ctx, v, a)
	})
}

// named returns an order about a network card that checks the card's name first.
func named(do func(context.Context, *table.VM, order.Name) (order.Card, error)) func(context.Context, *table.VM, order.Name) (order.Card, error) {
	return func(ctx context.Context, v *table.VM, a order.Name) (order.Card, error) {
		if !cardName.MatchString(a.Name) {
			return order.Card{}, fmt.Errorf("%w: %.80q is not the name of a network card", vmerrors.ErrInvalid, a.Name)
		}
		return do(ctx, v, a)
	}
}

// cardName is what a VMI may name its network cards.
var cardName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// about returns what a record says of a disk.
func about(r record.Container, name string) order.Disk {
	i := r.FindPlugged(name)
	if i < 0 || r.State != record.Running {
		return order.Disk{Name: name, State: order.None}
	}
	p := r.Plugged[i]
	return order.Disk{Name: name, State: order.State(p.State), Target: p.Disk.Target, Container: p.Container}
}
