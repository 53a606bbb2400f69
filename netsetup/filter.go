package netsetup

import (
	"context"
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"
)

// tableName is the nft table's, of family bridge, in each pod's namespace.
const tableName = "nodevirt"

// addFilter makes the table, or makes it anew. What goes from nftables makes nft wait for the
// kernel to be done with it, 5 to 25 ms even if it was nothing: only a repetition removes.
func (s *Setup) addFilter(ctx context.Context, p Plan) error {
	return within(p.Netns, func() error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		makeTable(tx, p)
		err = nft.Run(ctx, tx)
		if knftables.IsAlreadyExists(err) {
			tx = nft.NewTransaction()
			remakeTable(tx, p)
			err = nft.Run(ctx, tx)
		}
		if err != nil {
			return fmt.Errorf("load nft table %s: %w", tableName, err)
		}
		return nil
	})
}

// removeFilter adds the table first, so that it may be absent: older versions of nft
// have no "destroy".
func (s *Setup) removeFilter(ctx context.Context, p Plan) error {
	return withinOwn(p, p.NICs[0], func(*netlink.Handle, netlink.Link) error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		if err := nft.Run(ctx, tx); err != nil {
			return fmt.Errorf("remove nft table %s: %w", tableName, err)
		}
		return nil
	})
}

// nftables returns what runs nft in the calling thread's network namespace. Making it
// takes some runs of nft, so that it is kept.
func (s *Setup) nftables() (knftables.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nft != nil {
		return s.nft, nil
	}
	nft, err := knftables.New(knftables.BridgeFamily, tableName)
	if err != nil {
		return nil, fmt.Errorf("prepare nft: %w", err)
	}
	s.nft = nft
	return nft, nil
}

// makeTable fails where the table is there already.
func makeTable(tx *knftables.Transaction, p Plan) {
	tx.Create(&knftables.Table{})
	addRules(tx, p.NICs[0])
}

// remakeTable makes the table anew, in one transaction: no frame passes without its rules.
func remakeTable(tx *knftables.Transaction, p Plan) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	makeTable(tx, p)
}

func addRules(tx *knftables.Transaction, n NIC) {
	port := strconv.Quote(n.Interface)
	chains := []struct {
		hook  knftables.BaseChainHook
		rules []string
	}{
		{knftables.PreroutingHook, []string{
			// What a CNI bridge in hairpin mode sends back.
			knftables.Concat("iifname", port, "ether saddr", n.GuestMAC, "drop"),
			// DHCP stays in the pod: other pods' servers, and their guests, are next door.
			knftables.Concat("iifname", port, "udp dport { 67, 68 } drop"),
		}},
		{knftables.PostroutingHook, []string{
			knftables.Concat("oifname", port, "udp dport { 67, 68 } drop"),
		}},
		// The pod's own side of the bridge speaks with the guest alone: its link-local
		// address is the same in all pods, which would answer for each other.
		{knftables.InputHook, []string{knftables.Concat("iifname", port, "drop")}},
		{knftables.OutputHook, []string{knftables.Concat("oifname", port, "drop")}},
	}
	for _, chain := range chains {
		tx.Add(&knftables.Chain{
			Name:     string(chain.hook),
			Type:     knftables.PtrTo(knftables.FilterType),
			Hook:     new(chain.hook),
			Priority: knftables.PtrTo(knftables.FilterPriority),
		})
	}
	for _, chain := range chains {
		for _, rule := range chain.rules {
			tx.Add(&knftables.Rule{Chain: string(chain.hook), Rule: rule})
		}
	}
}
