package reach

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/knftables"
)

// Table is the name of the table, of family inet.
const Table = "nodevirt-vms"

// The sets hold the user, the address and the TCP port of each allowed portal.
const (
	portals4 = "portals4"
	portals6 = "portals6"
)

// wide is the set of users that may reach all of Options.Networks.
const wide = "wide"

// changeTime is how long a run of nft may take.
const changeTime = 10 * time.Second

// table adds the table to tx, in place of one that exists. The chain sees packets before their
// destination is translated. So a portal stays allowed while package outage redirects it.
func (f *Filter) table(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{}) // older versions of nft have no "destroy"
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Set{Name: portals4, Type: "uid . ipv4_addr . inet_service"})
	tx.Add(&knftables.Set{Name: portals6, Type: "uid . ipv6_addr . inet_service"})
	tx.Add(&knftables.Set{Name: wide, Type: "uid"})
	tx.Add(&knftables.Chain{Name: "vm"})
	for _, network := range f.opts.Networks {
		family := "ip"
		if network.Addr().Is6() {
			family = "ip6"
		}
		tx.Add(&knftables.Rule{Chain: "vm", Rule: "meta skuid @" + wide + " " + family + " daddr " + network.Masked().String() + " meta l4proto tcp accept"})
	}
	for _, rule := range []string{
		"meta skuid . ip daddr . tcp dport @" + portals4 + " accept",
		"meta skuid . ip6 daddr . tcp dport @" + portals6 + " accept",
		"meta l4proto tcp reject with tcp reset",
		"reject",
	} {
		tx.Add(&knftables.Rule{Chain: "vm", Rule: rule})
	}
	tx.Add(&knftables.Chain{
		Name: "output", Type: new(knftables.FilterType), Hook: new(knftables.OutputHook), Priority: new(knftables.BaseChainPriority("-150")), // mangle's
	})
	tx.Add(&knftables.Rule{Chain: "output", Rule: entry(f.opts.FirstUID, f.opts.LastUID)})
	for uid, portals := range f.allowed {
		for _, e := range f.elements(uid, portals) {
			tx.Add(e)
		}
	}
}

// entry is the rule that sends the packets of a range of users to the other rules.
func entry(first, last uint32) string { return fmt.Sprintf("meta skuid %d-%d jump vm", first, last) }

// elements are those of a user's portals.
func (f *Filter) elements(uid uint32, portals []netip.AddrPort) []*knftables.Element {
	var all []*knftables.Element
	for _, p := range portals {
		all = append(all, element(uid, p))
	}
	if slices.ContainsFunc(portals, f.inNetworks) {
		all = append(all, &knftables.Element{Set: wide, Key: []string{fmt.Sprint(uid)}})
	}
	return all
}

func (f *Filter) inNetworks(p netip.AddrPort) bool {
	return slices.ContainsFunc(f.opts.Networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) })
}

func element(uid uint32, p netip.AddrPort) *knftables.Element {
	set := portals4
	if p.Addr().Is6() {
		set = portals6
	}
	return &knftables.Element{Set: set, Key: []string{fmt.Sprint(uid), p.Addr().String(), fmt.Sprint(p.Port())}}
}

// nftables returns what runs nft. Creating it takes some runs of nft, so it is kept.
func (f *Filter) nftables() (knftables.Interface, error) {
	if f.nft != nil {
		return f.nft, nil
	}
	nft, err := knftables.New(knftables.InetFamily, Table)
	if err != nil {
		return nil, fmt.Errorf("prepare nft: %w", err)
	}
	f.nft = nft
	return nft, nil
}

// change ignores the end of ctx: after an interrupted change the table would be unknown.
func (f *Filter) change(ctx context.Context, add func(*knftables.Transaction)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTime)
	defer cancel()
	nft, err := f.nftables()
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	add(tx)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("change nft table %s: %w", Table, err)
	}
	return nil
}

// listed returns the portals that the kernel's table allows; none if there is no table.
func (f *Filter) listed(ctx context.Context) (map[uint32][]netip.AddrPort, error) {
	nft, err := f.nftables()
	if err != nil {
		return nil, err
	}
	all := map[uint32][]netip.AddrPort{}
	for _, set := range []string{portals4, portals6} {
		elements, err := nft.ListElements(ctx, "set", set)
		if knftables.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list nft table %s: %w", Table, err)
		}
		for _, e := range elements {
			uid, portal, err := parse(e.Key)
			if err != nil {
				return nil, fmt.Errorf("list nft table %s: element %q: %w", Table, e.Key, err)
			}
			all[uid] = append(all[uid], portal)
		}
	}
	return all, nil
}

func parse(key []string) (uint32, netip.AddrPort, error) {
	if len(key) != 3 {
		return 0, netip.AddrPort{}, strconv.ErrSyntax
	}
	uid, err := strconv.ParseUint(key[0], 10, 32)
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddr(key[1])
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(key[2], 10, 16)
	return uint32(uid), netip.AddrPortFrom(addr, uint16(port)), err
}

// Check returns an error unless the table exists and covers the users first to last.
func Check(ctx context.Context, first, last uint32) error {
	cmd := exec.CommandContext(ctx, "nft", "--numeric", "list", "table", "inet", Table)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("list nft table %s: %w: %s", Table, err, strings.TrimSpace(string(out)))
	}
	if rule := entry(first, last); !strings.Contains(string(out), rule) {
		return fmt.Errorf("nft table %s: the rule %q is missing", Table, rule)
	}
	return nil
}
