package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// table is the nftables table that redirects to dead ends. It exists only while there are any.
const table = "nodevirt-iscsi"

// changeTime is how long a run of nft may take.
const changeTime = 10 * time.Second

// rule redirects connections to a portal to a port on loopback.
type rule struct {
	portal netip.AddrPort
	port   uint16
}

func (r rule) text(first, last uint32) string {
	family := "ip"
	if r.portal.Addr().Is6() {
		family = "ip6"
	}
	return fmt.Sprintf("meta skuid %d-%d %s daddr %s tcp dport %d redirect to :%d",
		first, last, family, r.portal.Addr(), r.portal.Port(), r.port)
}

// writeRules replaces the redirections. They affect connections of the users first to last.
func writeRules(ctx context.Context, first, last uint32, rules []rule) error {
	return change(ctx, func(tx *knftables.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Chain{
			Name: "output", Type: new(knftables.NATType), Hook: new(knftables.OutputHook), Priority: new(knftables.BaseChainPriority("-100")),
		})
		for _, r := range rules {
			tx.Add(&knftables.Rule{Chain: "output", Rule: r.text(first, last)})
		}
	})
}

// removeRules removes all redirections, if any.
func removeRules(ctx context.Context) error {
	return change(ctx, func(*knftables.Transaction) {})
}

// change ignores the end of ctx: after an interrupted change the rules would be unknown.
func change(ctx context.Context, add func(*knftables.Transaction)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTime)
	defer cancel()
	nft, err := knftables.New(knftables.InetFamily, table)
	if err != nil {
		return fmt.Errorf("prepare nft: %w", err)
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{}) // it may be absent
	tx.Delete(&knftables.Table{})
	add(tx)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("change nft table %s: %w", table, err)
	}
	return nil
}

// disconnect ends the VMs' connections to a portal. QEMU reconnects at once, and is redirected to the
// dead end. Connections to the dead end stay.
func (w *watcher) disconnect(at netip.AddrPort, end *deadEnd) error {
	family := uint8(unix.AF_INET)
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	all, err := netlink.SocketDiagTCP(family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list connections: %w", err)
	}
	var errs []error
	for _, s := range all {
		peer, _ := netip.AddrFromSlice(s.ID.Destination)
		if s.UID < w.FirstUID || s.UID > w.LastUID || netip.AddrPortFrom(peer.Unmap(), s.ID.DestinationPort) != at {
			continue
		}
		// A redirected connection has the portal's address on the initiator's side.
		own, _ := netip.AddrFromSlice(s.ID.Source)
		if end.serves(netip.AddrPortFrom(own.Unmap(), s.ID.SourcePort)) {
			continue
		}
		err := netlink.SocketDestroy(
			&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("end a connection to %s: %w", at, err))
		}
	}
	return errors.Join(errs...)
}
