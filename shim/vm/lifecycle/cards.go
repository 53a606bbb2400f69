package lifecycle

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Cards connects network cards that running VMs get to the networks of other pods, for package hotplug.
type Cards struct{ l *Lifecycle }

// Cards returns the part of the Lifecycle for network cards.
func (l *Lifecycle) Cards() Cards { return Cards{l} }

// Plan reads the network namespace of a pod, by its sandbox, and plans the network of a card there. The guest
// gets the DNS settings of the VM's pod.
func (c Cards) Plan(ctx context.Context, r record.Container, card vmspec.Interface, container, sandbox string) (netsetup.Plan, error) {
	netns, err := c.l.starts.sandboxes.NetworkNamespace(ctx, sandbox)
	if err != nil {
		return netsetup.Plan{}, err
	}
	return c.l.starts.parts.plan(ctx, r, container, netns, []vmspec.Interface{card})
}

// Make makes the network and the card's tap, which libvirtd needs, and has dnsmasq serve the guest in the VM's
// cgroup.
func (c Cards) Make(ctx context.Context, r record.Container, p netsetup.Plan) error {
	if err := c.l.starts.parts.network.Apply(ctx, p); err != nil {
		return err
	}
	return c.l.starts.parts.serve(ctx, r, p)
}

// Connect moves the tap, which QEMU has open, to the network.
func (c Cards) Connect(ctx context.Context, p netsetup.Plan) error {
	return c.l.starts.parts.network.Connect(ctx, p)
}

// Keep keeps dnsmasq running while the VM has the card.
func (c Cards) Keep(v *table.VM, p netsetup.Plan) { c.l.starts.dhcp.keepOne(v, p) }

// Undo ends dnsmasq, and removes the tap and the network. What other cards of the VM use stays.
func (c Cards) Undo(ctx context.Context, r record.Container, card record.PluggedCard) error {
	return undoCard(ctx, c.l.starts.parts.network, r, card)
}

func undoCard(ctx context.Context, n Network, r record.Container, card record.PluggedCard) error {
	if r.SharesNetwork(card) {
		return n.Release(ctx, card.Network)
	}
	return n.Undo(ctx, card.Network)
}

// removeCards undoes the networks of the cards that a VM had got, or was about to lose. Those that could not be undone stay in r.
func (t *teardown) removeCards(ctx context.Context, r *record.Container) error {
	var left []record.PluggedCard
	var errs []error
	for _, c := range r.Cards {
		if err := undoCard(ctx, t.network, *r, c); err != nil {
			errs, left = append(errs, err), append(left, c)
		}
	}
	r.Cards = left
	return errors.Join(errs...)
}
