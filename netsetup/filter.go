package netsetup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"
)

// tableName is the name of the nft tables in each pod's namespace: one of family bridge for the
// guest's frames, one of family inet for packets that reach the pod's IP layer.
const tableName = "nodevirt"

var families = []knftables.Family{knftables.BridgeFamily, knftables.InetFamily}

// addFilter creates the tables, or replaces them. A removal makes nft wait for the kernel, 5 to
// 25 ms even if there is nothing to remove. So addFilter removes the tables only if they exist.
func (s *Setup) addFilter(ctx context.Context, p Plan) error {
	if len(p.wired()) == 0 {
		return nil
	}
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

// Free forwards to guests also the ports that a plan has reserved, once the caller needs them no more. A namespace that is
// gone is no error.
func (s *Setup) Free(ctx context.Context, p Plan) error {
	if err := p.check(); err != nil || !slices.ContainsFunc(p.NICs, func(n NIC) bool { return n.Reserved != 0 }) {
		return err
	}
	p.NICs = slices.Clone(p.NICs)
	for i := range p.NICs {
		p.NICs[i].Reserved = 0
	}
	if err := s.addFilter(ctx, p); err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("forward reserved ports of pod network %s: %w", p.Netns, err)
	}
	return nil
}

func (s *Setup) removeFilter(ctx context.Context, p Plan) error {
	return withinFirst(p, func(*netlink.Handle, netlink.Link) error {
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

// nftables returns an interface that runs nft in the calling thread's network namespace. Creating
// it takes some runs of nft, so it is kept.
func (s *Setup) nftables() (knftables.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nft != nil {
		return s.nft, nil
	}
	nft, err := knftables.New("", "") // for several tables
	if err != nil {
		return nil, fmt.Errorf("prepare nft: %w", err)
	}
	s.nft = nft
	return nft, nil
}

// makeTables adds the creation of the tables to tx. It fails if one exists.
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

// removeTables adds the removal of the tables to tx. It adds each table first, so that the table may
// be absent: older versions of nft have no "destroy".
func removeTables(tx *knftables.Transaction) {
	for _, family := range families {
		tx.Add(&knftables.Table{Family: family, Name: tableName})
		tx.Delete(&knftables.Table{Family: family, Name: tableName})
	}
}

// chain is an nft chain with its rules. Other chains jump to one without a hook.
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

// chains returns the chains of the pod that have rules.
func chains(p Plan) []chain {
	var all []chain
	for _, c := range append(bridgeChains(p), inetChains(p)...) {
		if len(c.rules) > 0 {
			all = append(all, c)
		}
	}
	return all
}
