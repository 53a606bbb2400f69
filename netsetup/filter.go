package netsetup

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"
)

// tableName is the nft tables', in each pod's namespace: one of family bridge for the guests'
// frames, one of family inet for what reaches the pod's IP.
const tableName = "nodevirt"

var families = []knftables.Family{knftables.BridgeFamily, knftables.InetFamily}

// addFilter makes the tables, or makes them anew. What goes from nftables makes nft wait for the
// kernel to be done with it, 5 to 25 ms even if it was nothing: only a repetition removes.
func (s *Setup) addFilter(ctx context.Context, p Plan) error {
	return within(p.Netns, func() error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		makeTables(tx, p)
		err = nft.Run(ctx, tx)
		if knftables.IsAlreadyExists(err) {
			tx = nft.NewTransaction()
			removeTables(tx)
			makeTables(tx, p) // in one transaction: no frame passes without its rules
			err = nft.Run(ctx, tx)
		}
		if err != nil {
			return fmt.Errorf("load nft tables %s: %w", tableName, err)
		}
		return nil
	})
}

func (s *Setup) removeFilter(ctx context.Context, p Plan) error {
	return withinOwn(p, p.NICs[0], func(*netlink.Handle, netlink.Link) error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		removeTables(tx)
		if err := nft.Run(ctx, tx); err != nil {
			return fmt.Errorf("remove nft tables %s: %w", tableName, err)
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
	nft, err := knftables.New("", "") // of several tables
	if err != nil {
		return nil, fmt.Errorf("prepare nft: %w", err)
	}
	s.nft = nft
	return nft, nil
}

// makeTables fails where a table is there already.
func makeTables(tx *knftables.Transaction, p Plan) {
	chains := chains(p)
	for _, family := range families {
		tx.Create(&knftables.Table{Family: family, Name: tableName})
	}
	for _, c := range chains {
		tx.Add(c.object())
	}
	for _, c := range chains {
		for _, rule := range c.rules {
			tx.Add(&knftables.Rule{Family: c.family, Table: tableName, Chain: c.name, Rule: rule})
		}
	}
}

// removeTables adds the tables first, so that they may be absent: older versions of nft
// have no "destroy".
func removeTables(tx *knftables.Transaction) {
	for _, family := range families {
		tx.Add(&knftables.Table{Family: family, Name: tableName})
		tx.Delete(&knftables.Table{Family: family, Name: tableName})
	}
}

// chain is one with its rules. Without a hook, others jump to it.
type chain struct {
	family   knftables.Family
	name     string
	kind     knftables.BaseChainType
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

func (c chain) object() *knftables.Chain {
	o := &knftables.Chain{Family: c.family, Table: tableName, Name: c.name}
	if c.hook != "" {
		o.Type, o.Hook, o.Priority = new(c.kind), new(c.hook), new(c.priority)
	}
	return o
}

func (c *chain) add(parts ...any) { c.rules = append(c.rules, knftables.Concat(parts...)) }

// chains are all of the pod's, without those that are empty.
func chains(p Plan) []chain {
	var all []chain
	for _, c := range append(bridgeChains(p), inetChains(p)...) {
		if len(c.rules) > 0 {
			all = append(all, c)
		}
	}
	return all
}
