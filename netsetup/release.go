package netsetup

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Split returns a plan without one of its cards, and the plan of that card alone. Both have the ID of the
// whole, and the rest has no cards if the card was the only one. The result is false if the plan has no such card.
func (p Plan) Split(card string) (rest, one Plan, found bool) {
	i := slices.IndexFunc(p.NICs, func(n NIC) bool { return n.Card == card })
	if i < 0 {
		return p, Plan{}, false
	}
	rest, one = p, p
	rest.NICs = slices.Delete(slices.Clone(p.NICs), i, i+1)
	one.NICs = slices.Clone(p.NICs[i : i+1])
	return rest, one, true
}

// Release removes the tap and the bridge of a card that [Plan.Split] returned, and restores the addresses and routes of
// the pod's interface. DHCP, the filter and the settings of the pod stay, for the VM's other cards. As
// [Setup.Undo] it may be repeated.
func (s *Setup) Release(ctx context.Context, one Plan) error {
	if err := one.check(); err != nil {
		return err
	}
	for _, n := range one.NICs {
		if n.plugged() {
			return fmt.Errorf("the device of card %s is its network binding plug-in's", n.Card)
		}
		for _, undo := range []func(Plan, NIC) error{removeTap, restoreInterface, removeBridge} {
			if err := errors.Join(ctx.Err(), undo(one, n)); err != nil {
				return fmt.Errorf("release interface %s of pod network %s: %w", n.Interface, one.Netns, err)
			}
		}
	}
	return nil
}
