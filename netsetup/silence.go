package netsetup

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
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
		defer hurry()()
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

// Ready has the next call of [Setup.Silence] take one run of nft.
func (s *Setup) Ready() error {
	_, err := s.nftables()
	return err
}

// hurry has the calling thread, and what it executes, run before others, until it calls end: a pod that is not
// silent yet announces its address.
func hurry() (end func()) {
	const first = -20
	thread := unix.Gettid()
	was, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil || unix.Setpriority(unix.PRIO_PROCESS, thread, first) != nil {
		return func() {} // it takes longer
	}
	return func() { _ = unix.Setpriority(unix.PRIO_PROCESS, thread, kernelNice-was) }
}

// kernelNice is the sum of a thread's nice value and what the system call getpriority returns for it.
const kernelNice = 20

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
