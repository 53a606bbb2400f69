package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// patience bounds an order's calls to libvirtd.
const patience = 30 * time.Second

// maxName bounds the name of the target's node, in bytes: Kubernetes' own bound.
const maxName = 253

// leaving is the VM on the source, with its persistent state.
type leaving struct {
	*migrate.Source

	node *node
	vm   *table.VM
}

// Release implements handover's. The target locks the persistent state before it takes the guest.
func (l leaving) Release(context.Context) error { return l.node.o.Life().Yield(l.vm) }

// Keep implements handover's. The guest runs only with its persistent state locked.
func (l leaving) Keep(ctx context.Context) error {
	if err := l.node.o.Life().Reclaim(l.vm); err != nil {
		return err
	}
	return l.Source.Keep(ctx)
}

// identify makes the source's identity for a migration.
func (m *sources) identify(ctx context.Context, v *table.VM, a order.Departure) (order.Identity, error) {
	s := m.of(v)
	s.orders.Lock()
	defer s.orders.Unlock()
	r := v.Record()
	one, err := m.free(v, a.Migration.Migration)
	if err != nil {
		return order.Identity{}, err
	}
	if r.State != record.Running || r.Incoming != "" {
		return order.Identity{}, fmt.Errorf("%w: the VM does not run", vmerrors.ErrState)
	}
	if err := m.check(r); err != nil {
		return order.Identity{}, err
	}
	own, err := m.guest(r)
	if err != nil {
		return order.Identity{}, err
	}
	own.Plugged = departing(r)
	if own.Lengths, err = m.lengths(r, a.Copied); err != nil {
		return order.Identity{}, err
	}
	if one == nil {
		if err := errors.Join(m.runs(ctx, r), m.room(r, len(copied(r, a.Copied)))); err != nil {
			return order.Identity{}, err
		}
		one = &migration{uid: a.Migration.Migration, copies: a.Copied}
		if one.identity, err = link.NewIdentity(); err != nil {
			return order.Identity{}, err
		}
		s.set(one)
		m.o.Life().Announce(v) // the target's pod may have announced itself
	}
	return order.Identity{Fingerprint: one.identity.Fingerprint().String(), Guest: &own}, nil
}

// runs returns an error for a guest that is paused: the target would resume it.
func (m *sources) runs(ctx context.Context, r record.Container) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	state, err := m.o.Domains.State(ctx, r.Domain.UUID)
	if err == nil && state.Status != domain.StatusRunning {
		err = fmt.Errorf("%w: the guest is %s: it must run to move", vmerrors.ErrState, state.Status)
	}
	return err
}

// free returns the migration of this UID if it is known, and nil if it is a new one which may
// begin.
func (m *node) free(v *table.VM, uid string) (*migration, error) {
	one, broken := m.of(v).last()
	switch {
	case broken != nil:
		return nil, broken
	case one == nil || one.uid != uid && !one.active():
		return nil, nil
	case one.uid != uid:
		return nil, fmt.Errorf("%w: migration %s has not ended", vmerrors.ErrState, one.uid)
	}
	return one, nil
}

// send begins to move the VM, in the background.
func (m *sources) send(ctx context.Context, v *table.VM, a order.Sending) (order.Report, error) {
	s := m.of(v)
	s.orders.Lock()
	defer s.orders.Unlock()
	one, err := m.free(v, a.Migration.Migration)
	if err != nil {
		return order.Report{}, err
	}
	if one == nil {
		return order.Report{}, fmt.Errorf("%w: migration %s has no certificate here: send %s first; the shim forgets it when it restarts",
			vmerrors.ErrState, a.Migration.Migration, order.Identify)
	}
	if one.ends() != nil {
		return one.report(), nil // it began before
	}
	dialer, err := m.dialer(ctx, v.Record(), one, a.Target)
	if err != nil {
		return order.Report{}, err
	}
	begun, err := m.begin(ctx, v, one, a, dialer)
	if err != nil {
		return order.Report{}, err
	}
	m.o.Life().Announce(v)
	m.o.Tasks.Run(func(ctx context.Context) { m.copy(ctx, v, one, a, begun, dialer) })
	return one.report(), nil
}

// departure is a copy that has been recorded and not begun.
type departure struct {
	source  *handover.Source
	shape   []byte
	running context.Context //nolint:containedctx // of the copy, which outlasts the order
	stop    context.CancelCauseFunc
}

// begin records that the VM moves, with all that the copy needs to know of it. It holds the VM's turn meanwhile:
// nothing that excludes a move, such as a backup or another disk, begins between its look and its record.
func (m *sources) begin(ctx context.Context, v *table.VM, one *migration, a order.Sending, dialer *link.Dialer) (departure, error) {
	var none departure
	unlock, err := v.Lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running {
		return none, fmt.Errorf("%w: the VM does not run", vmerrors.ErrState)
	}
	if err := m.check(r); err != nil {
		return none, err // it got a disk since it was asked for its identity
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	text, err := m.o.Domains.MigratableXML(ctx, r.Domain.UUID)
	if err != nil {
		return none, err
	}
	d := departure{}
	if d.shape, err = compat.Encode(text); err != nil {
		return none, err
	}
	machine, err := m.machine(r, one.copies)
	if err != nil {
		return none, err
	}
	if err := m.o.Copies.PrepareMirrors(ctx, r.Domain.UUID, machine.Disks); err != nil {
		return none, err
	}
	machine.OtherFiles = otherFiles(r, a.Target)
	machine.Bandwidth, machine.Converge = uint64(max(0, a.Bandwidth)+1<<20-1)>>20, a.AutoConverge
	if machine.Live, err = m.o.Copies.MigratesLive(ctx, r.Domain.UUID); err != nil {
		return none, err
	}
	if err := machine.Sockets.MakeSource(); err != nil {
		return none, err
	}
	rec := handover.NewSending(one.uid, r.Domain.UUID)
	rec.Peer = fields.Clip(a.Node, maxName)
	if err := m.file(r).Put(rec); err != nil {
		return none, errors.Join(err, machine.Sockets.Remove())
	}
	d.source = handover.NewSource(rec, leaving{migrate.NewSource(machine, dialer), m.node, v}, m.file(r), m.o.Limits, m.observe(v, one.uid, func(handover.Step) {}))
	d.running, d.stop = context.WithCancelCause(m.o.Tasks.Context())
	one.mu.Lock()
	defer one.mu.Unlock()
	one.source, one.cancel, one.begun, one.paused = d.source, d.stop, time.Now(), !machine.Live
	return d, nil
}

// copy copies the guest to the target, and settles how that ended.
func (m *sources) copy(ctx context.Context, v *table.VM, one *migration, a order.Sending, d departure, dialer *link.Dialer) {
	defer d.stop(nil)
	limits := copyBounds{perGiB: a.PerGiB, memory: v.Record().Spec.Memory, timeout: a.Timeout, stall: a.Stall}
	if a.Pause {
		limits.pause = func(ctx context.Context) error { return m.pause(ctx, v, one) }
	}
	m.o.Tasks.Run(func(context.Context) { one.bound(d.running, limits) }) //nolint:contextcheck // the copy's own context
	m.limitDowntime(d.running, v, firstDowntime)                          //nolint:contextcheck // the copy's own context
	m.o.Tasks.Run(func(context.Context) { m.measure(d.running, one, v) }) //nolint:contextcheck // the copy's own context
	dial := func(ctx context.Context) (net.Conn, error) { return dialer.Dial(ctx, link.Control) }
	err := d.source.Run(d.running, dial, d.shape) //nolint:contextcheck // the copy's own context
	d.stop(nil)
	m.settle(ctx, v, one, dial, err)
}

// dialer reaches the target from the VM's pod, or from the node if the guest has the pod's address.
func (m *sources) dialer(ctx context.Context, r record.Container, one *migration, target order.Identity) (*link.Dialer, error) {
	peer, err := link.ParseFingerprint(target.Fingerprint)
	if err != nil {
		return nil, fmt.Errorf("%w: target: %w", vmerrors.ErrInvalid, err)
	}
	address, err := netip.ParseAddrPort(target.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: target: %w", vmerrors.ErrInvalid, err)
	}
	dial := m.o.DialNode
	if !r.Spec.TakesPodAddress() {
		netns, err := m.o.Sandboxes.NetworkNamespace(ctx, r.SandboxID)
		if err != nil {
			return nil, err
		}
		dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) { return m.o.Dial(ctx, netns, to) }
	}
	return link.NewDialer(one.identity, peer, func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return counted{conn, &one.copied}, nil
	}), nil
}

// pause pauses a guest that is copied, so that it writes nothing more. libvirt knows that it is for a migration.
func (m *sources) pause(ctx context.Context, v *table.VM, one *migration) error {
	if one.report().Paused {
		return nil
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := m.o.Copies.Pause(within, v.Record().Domain.UUID); err != nil {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.paused = true
	return nil
}
