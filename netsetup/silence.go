package netsetup

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/knftables"
)

// silenceName is the name of the tables that keep the pod's own network stack silent.
const silenceName = "nodevirt-silence"

// Silence stops a pod's own network stack from sending and receiving on eth0, until the pod ends. It
// is for pods whose address another pod has too: one of both has the guest, and this one must not
// answer in its place. A guest's frames, which a bridge forwards, pass. Silence may be repeated.
func (s *Setup) Silence(ctx context.Context, netns string) error {
	if err := checkNetns(netns); err != nil {
		return err
	}
	err := within(netns, func() error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		for _, c := range silentChains() {
			table := &knftables.Table{Family: c.family, Name: silenceName}
			object := c.object()
			object.Table = silenceName
			tx.Add(table)
			tx.Add(object)
			tx.Flush(object)
			for _, rule := range c.rules {
				tx.Add(&knftables.Rule{Family: c.family, Table: silenceName, Chain: c.name, Rule: rule})
			}
		}
		return nft.Run(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("silence pod %s: %w", netns, err)
	}
	return nil
}

// silentChains returns the chains that drop what the pod sends and receives.
func silentChains() []chain {
	var all []chain
	for _, family := range []knftables.Family{knftables.ARPFamily, knftables.InetFamily} {
		for hook, match := range map[knftables.BaseChainHook]string{knftables.InputHook: "iifname", knftables.OutputHook: "oifname"} {
			c := chain{family: family, name: string(hook), kind: knftables.FilterType, hook: hook, priority: knftables.FilterPriority}
			c.add(match, `"`+podInterface+`"`, "drop")
			all = append(all, c)
		}
	}
	return all
}

// silence silences a pod whose address moves with its guest. Undo keeps it silent: the address
// that it restores may be that of a guest that has left.
func (s *Setup) silence(ctx context.Context, p Plan) error {
	bridged := slices.ContainsFunc(p.NICs, func(n NIC) bool { return !n.masqueraded() && n.Interface == podInterface })
	if !p.Silent || !bridged {
		return nil
	}
	return s.Silence(ctx, p.Netns)
}
