package netsetup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// silenceName is the name of the tables that keep the pod's own network stack silent.
const silenceName = "nodevirt-silence"

// Silence stops a pod's own network stack from sending and receiving on some of its interfaces, until the
// pod ends. It is for pods whose addresses another pod has too: one of both has the guest, and this one must
// neither answer in its place nor have switches learn its own port. The interfaces need not exist yet. A guest's
// frames, which a bridge forwards, pass. Silence may be repeated, with all interfaces.
func (s *Setup) Silence(ctx context.Context, netns string, interfaces ...string) error {
	errs := []error{checkNetns(netns)}
	for _, name := range interfaces {
		errs = append(errs, checkInterface(name))
	}
	if err := errors.Join(errs...); err != nil || len(interfaces) == 0 {
		return err
	}
	err := within(netns, func() error {
		defer hurry()()
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		for _, c := range silentChains(interfaces) {
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

// silentChains returns the chains that drop what the pod sends and receives on some interfaces.
func silentChains(interfaces []string) []chain {
	var all []chain
	for _, family := range []knftables.Family{knftables.ARPFamily, knftables.InetFamily} {
		for hook, match := range map[knftables.BaseChainHook]string{knftables.InputHook: "iifname", knftables.OutputHook: "oifname"} {
			c := chain{family: family, name: string(hook), kind: knftables.FilterType, hook: hook, priority: knftables.FilterPriority}
			for _, name := range interfaces {
				c.add(match, strconv.Quote(name), "drop")
			}
			all = append(all, c)
		}
	}
	return all
}

// silence silences a pod whose address moves with its guest, or that waits for its guest. Undo keeps it
// silent: the addresses that it restores may be those of a guest that has left.
func (s *Setup) silence(ctx context.Context, p Plan) error {
	return s.Silence(ctx, p.Netns, p.interfaces(func(n NIC) bool { return p.Waits || p.Silent && n.Interface == podInterface })...)
}

// interfaces returns the pod's interfaces whose addresses the guest has, for some of its cards.
func (p Plan) interfaces(of func(NIC) bool) []string {
	var all []string
	for _, n := range p.NICs {
		if !n.masqueraded() && of(n) {
			all = append(all, n.Interface)
		}
	}
	return all
}

// Leave silences the pod of a guest that has left, and its side of the guest's bridges, before [Setup.Undo] gives its interfaces the guest's addresses
// back. A namespace that is gone is no error.
func (s *Setup) Leave(ctx context.Context, p Plan) error {
	err := errors.Join(p.check(), ctx.Err())
	if all := p.interfaces(func(NIC) bool { return true }); err == nil && len(all) > 0 {
		p.Waits = true
		err = errors.Join(s.Silence(ctx, p.Netns, all...), s.hold(ctx, p))
	}
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// waitsName is the name of the table that keeps the pod's side of a guest's bridges silent while the guest is not there. The guest's router has the same addresses in the guest's other pod.
const waitsName = "nodevirt-waits"

// hold keeps the pod's side of the bridges of a pod that waits for its guest from the network. What the guest itself sends
// and receives passes: QEMU announces the guest as soon as it runs here.
func (s *Setup) hold(ctx context.Context, p Plan) error {
	if !p.Waits || !slices.ContainsFunc(p.NICs, NIC.bridged) {
		return nil
	}
	return within(p.Netns, func() error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		table := &knftables.Table{Family: knftables.BridgeFamily, Name: waitsName}
		tx.Add(table)
		for hook, match := range map[knftables.BaseChainHook]string{knftables.InputHook: "iifname", knftables.OutputHook: "oifname"} {
			c := chain{family: knftables.BridgeFamily, name: string(hook), kind: knftables.FilterType, hook: hook, priority: knftables.FilterPriority}
			object := c.object()
			object.Table = waitsName
			tx.Add(object)
			tx.Flush(object)
			for _, n := range p.NICs {
				if n.bridged() {
					tx.Add(&knftables.Rule{Family: c.family, Table: waitsName, Chain: c.name, Rule: knftables.Concat(match, strconv.Quote(n.Interface), "drop")})
				}
			}
		}
		return nft.Run(ctx, tx)
	})
}

// Own ends what [Setup.Apply] did to keep a pod from the network while it waited for its guest. The pod's own stack stays
// silent. A namespace that is gone is no error.
func (s *Setup) Own(ctx context.Context, p Plan) error {
	if err := p.check(); err != nil || !p.Waits || !slices.ContainsFunc(p.NICs, NIC.bridged) {
		return err
	}
	err := within(p.Netns, func() error {
		nft, err := s.nftables()
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		table := &knftables.Table{Family: knftables.BridgeFamily, Name: waitsName}
		tx.Add(table) // to delete what is not there is an error
		tx.Delete(table)
		return nft.Run(ctx, tx)
	})
	if err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("let pod %s reach the network of its guest: %w", p.Netns, err)
	}
	return nil
}
