package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
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
	limits := bounds{perGiB: a.PerGiB, memory: v.Record().Spec.Memory, timeout: a.Timeout, stall: a.Stall}
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

// bounds limit a copy; 0 is no limit.
type bounds struct {
	timeout, stall time.Duration
	// perGiB takes the place of timeout: it is that of a GiB of memory, which are bytes, or of a disk.
	perGiB time.Duration
	memory int64
	// pause pauses the guest after that, which then counts twice; nil for a copy that ends then.
	pause func(context.Context) error
}

// limit returns how long the copy may take. It grows when libvirt knows the disks' sizes.
func (b bounds) limit(job *domain.Job) time.Duration {
	if b.perGiB == 0 {
		return b.timeout
	}
	const gib, most = 1 << 30, 365 * 24 * time.Hour
	size := b.memory
	if job != nil { // the guest may have got memory
		size = max(size, int64(min(job.Total-job.DiskTotal, 1<<60))) + int64(min(job.DiskTotal, 1<<60))
	}
	return time.Duration(min(max((size+gib-1)/gib, 1), int64(most/b.perGiB)+1) * int64(b.perGiB))
}

// bound cancels a copy that takes too long, or stops.
func (g *migration) bound(ctx context.Context, b bounds) {
	begun, last, moved, paused, longest := time.Now(), int64(-1), time.Now(), false, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if g.ends().Record().State != handover.Sending {
			return // the copy is complete
		}
		if n := g.copied.Load(); n != last {
			last, moved = n, time.Now()
		}
		longest = max(longest, b.limit(g.job.Load())) // libvirt may have no answer for a moment
		limit := longest
		if paused {
			limit += limit
		}
		switch {
		case limit > 0 && time.Since(begun) > limit && b.pause != nil:
			if err := b.pause(ctx); err != nil {
				g.stop(fmt.Errorf("the copy took more than %s and has been aborted: its guest can't be paused: %w", limit, err))
			}
			paused, b.pause = true, nil
		case limit > 0 && time.Since(begun) > limit:
			g.stop(fmt.Errorf("the copy took more than %s and has been aborted", limit))
		case b.stall > 0 && time.Since(moved) > b.stall:
			g.stop(fmt.Errorf("nothing was copied for %s: the copy has been aborted", b.stall))
		}
	}
}

const (
	// measurePause is the time between two questions to libvirt for a copy's progress, and
	// measureTime bounds one.
	measurePause = time.Second
	measureTime  = 5 * time.Second
)

// QEMU stops the guest when what is left takes no longer than a limit. Its own limit suits guests that
// write much, and others would stop for nearly as long. So the limit is low first, and doubles each second
// of the copy up to QEMU's.
const (
	firstDowntime = 30 * time.Millisecond
	lastDowntime  = 300 * time.Millisecond
)

// limitDowntime sets QEMU's limit. Without it, the guest stops for longer.
func (m *sources) limitDowntime(ctx context.Context, v *table.VM, to time.Duration) {
	within, cancel := background.AtMost(ctx, measureTime)
	defer cancel()
	if err := m.o.Copies.LimitDowntime(within, v.Record().Domain.UUID, to); err != nil && ctx.Err() == nil {
		table.Logger(m.o.Logger, v.Record()).Warn("limiting a migration's downtime failed", "error", err)
	}
}

// measure keeps the progress of a copy, and lets the guest stop for longer the longer it takes. A libvirtd
// that hangs leaves the progress unknown.
func (m *sources) measure(ctx context.Context, one *migration, v *table.VM) {
	defer one.job.Store(nil)
	downtime := firstDowntime
	for ctx.Err() == nil && one.ends().Record().State == handover.Sending {
		within, cancel := background.AtMost(ctx, measureTime)
		job, err := m.o.Copies.Job(within, v.Record().Domain.UUID)
		cancel()
		if err != nil {
			job = nil
		}
		one.job.Store(job)
		background.Sleep(ctx, measurePause)
		if job != nil && downtime < lastDowntime && ctx.Err() == nil {
			downtime = min(2*downtime, lastDowntime)
			m.limitDowntime(ctx, v, downtime)
		}
	}
}

// askTime is how long a source asks the target before others can decide for it.
const askTime = 5 * time.Second

// settle carries out a source's decision, and asks the target for one if need be, until
// that has ended or the shim does. err is what happened before.
func (m *sources) settle(ctx context.Context, v *table.VM, one *migration, dial func(context.Context) (net.Conn, error), err error) {
	log := table.Logger(m.o.Logger, v.Record())
	if err != nil {
		log.Warn("a migration failed", "migration", one.uid, "error", err)
	}
	for !one.source.Record().Ended {
		if ctx.Err() != nil || exited(v) {
			return // the next shim recovers it, or nothing is left of it
		}
		if one.source.Record().State == handover.HandedOver {
			m.unsettled(v, one, true)
		}
		asking, cancel := context.WithTimeout(ctx, askTime)
		if err := one.source.Recover(asking, dial); err != nil && ctx.Err() == nil {
			log.Debug("settling a migration failed, retrying", "migration", one.uid, "error", err)
		}
		cancel()
		if !one.source.Record().Ended {
			background.Sleep(ctx, retryPause)
		}
	}
	one.finished()
	m.unsettled(v, one, false)
	log.Info("a migration ended", "migration", one.uid, "state", one.source.Record().State, "reason", one.source.Record().Reason)
	m.o.Life().Announce(v) // a guest that has stayed: the target's pod is removed only now
	if err := m.o.Life().Settle(context.WithoutCancel(ctx), v); err != nil {
		log.Error("asking for the state of a VM failed", "error", err)
	}
}

// unsettledMessage says what to do about a guest that is paused because no answer came.
const unsettledMessage = "the guest is handed over to another node, which does not answer; it is paused so that it never runs on both. " +
	"It goes on when that node answers. If that node is gone for good, delete its Node object, or taint it with " +
	"node.kubernetes.io/out-of-service"

func (m *sources) unsettled(v *table.VM, one *migration, is bool) {
	one.mu.Lock()
	was := one.unsettled
	one.unsettled = is
	one.mu.Unlock()
	switch {
	case is && !was:
		m.o.Conditions.SetUnsettled(v, unsettledMessage)
	case !is:
		m.o.Conditions.SetUnsettled(v, "")
	}
}
