package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// arriving is the VM on the target, with what its container becomes.
type arriving struct {
	*migrate.Target

	node  *node
	vm    *table.VM
	own   *migration
	close func() // closes the disks' files
}

// Finish implements handover's. It locks the persistent state, which the source has released.
func (a *arriving) Finish(ctx context.Context, cookie []byte) ([]byte, error) {
	cookie, err := a.Target.Finish(ctx, cookie)
	if err != nil {
		return nil, err
	}
	return cookie, a.node.o.Life().Reserve(ctx, a.vm)
}

// Resume implements handover's. It records that the guest is here, also if it has ended.
func (a *arriving) Resume(ctx context.Context) error {
	if err := a.node.o.Life().Inherit(a.vm); err != nil {
		return err
	}
	err := a.Target.Resume(ctx)
	if err != nil && !errors.Is(err, handover.ErrLost) {
		return err
	}
	a.close()
	return errors.Join(err, a.node.o.Life().Admit(ctx, a.vm))
}

// Discard implements handover's. It ends the container.
func (a *arriving) Discard(ctx context.Context) error {
	if err := a.Target.Discard(ctx); err != nil {
		return err
	}
	a.close()
	reason := ""
	if e := a.own.ends(); e != nil {
		reason = e.Record().Reason
	}
	return a.node.o.Life().Refuse(ctx, a.vm, reason)
}

// receive has a container that waits for its guest listen for the source.
func (m *targets) receive(ctx context.Context, v *table.VM, a order.Reception) (order.Identity, error) {
	s := m.of(v)
	s.orders.Lock()
	defer s.orders.Unlock()
	uid := a.Migration.Migration
	one, err := m.free(v, uid)
	if err != nil {
		return order.Identity{}, err
	}
	if one != nil && one.peer == a.Source {
		return one.reached(), nil
	}
	if one != nil {
		return order.Identity{}, fmt.Errorf("%w: migration %s expects another source", vmerrors.ErrState, uid)
	}
	peer, err := link.ParseFingerprint(a.Source)
	if err != nil {
		return order.Identity{}, fmt.Errorf("%w: source: %w", vmerrors.ErrInvalid, err)
	}
	if a.Guest == nil {
		return order.Identity{}, fmt.Errorf("%w: the order names no guest", vmerrors.ErrInvalid)
	}
	plugged, err := m.arriving(ctx, v.Record(), a)
	if err != nil {
		return order.Identity{}, err
	}
	if err := m.adopt(ctx, v, uid, *a.Guest, plugged); err != nil {
		return order.Identity{}, err
	}
	if err := m.find(v.Record()); err != nil {
		return order.Identity{}, err
	}
	one = &migration{uid: uid, peer: a.Source, begun: time.Now()}
	if one.identity, err = link.NewIdentity(); err != nil {
		return order.Identity{}, err
	}
	if err := m.listen(ctx, v, one, peer, a.Node); err != nil {
		return order.Identity{}, err
	}
	s.set(one)
	return one.reached(), nil
}

// adopt gives a container that waits the identity of the source's domain, and the disks that its guest
// has got.
func (m *targets) adopt(ctx context.Context, v *table.VM, uid string, guest order.Guest, plugged []record.PluggedDisk) error {
	id, err := uuid.Parse(guest.UUID)
	if err != nil {
		return fmt.Errorf("%w: guest: %w", vmerrors.ErrInvalid, err)
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m.adopting.Lock()
	defer m.adopting.Unlock()
	r := v.Record()
	switch {
	case r.State != record.Running || r.Incoming == "":
		return fmt.Errorf("%w: the container does not wait for a guest", vmerrors.ErrState)
	case r.Incoming != uid:
		return fmt.Errorf("%w: the container waits for the guest of migration %s", vmerrors.ErrState, r.Incoming)
	}
	own, err := m.guest(r)
	if err != nil {
		return err
	}
	if err := same(own, guest, vmspec.OnVolumes(r.Spec.Disks)); err != nil {
		return err
	}
	for _, other := range m.o.Table.All("") {
		o := other.Record()
		if o.ID == r.ID || o.Domain.UUID != id.String() || o.State == record.Exited && !o.Unclean {
			continue
		}
		// Each undo of that container would end this one's domain.
		return fmt.Errorf("%w: container %s on this node has the same VM: a VM moves to another node, and comes back "+
			"when its former container is cleaned up", vmerrors.ErrExists, o.ID)
	}
	if r, err = keepMTUs(r, guest.MTUs); err != nil {
		return err
	}
	if r, err = m.replace(ctx, r, plugged, guest.Plugged); err != nil {
		return err
	}
	if r, err = m.fit(r, guest); err != nil {
		return errors.Join(err, m.unplug(ctx, r))
	}
	r.Domain.UUID = id.String()
	return m.o.Table.Put(v, r)
}

// listener listens for the source in the VM's pod, or on the node's address, by one of its ports, if the guest has the pod's.
func (m *targets) listener(ctx context.Context, r record.Container, node netip.Addr) (net.Listener, *port, error) {
	if r.Spec.TakesPodAddress() {
		if !node.IsValid() {
			return nil, nil, fmt.Errorf("%w: the order names no address of the node, and the guest has the pod's: update nodevirt-controller", vmerrors.ErrInvalid)
		}
		p, err := m.ports.take(ctx, r.Sandbox.Value.GetMetadata().GetNamespace(), func(ctx context.Context) (net.Listener, error) {
			return m.o.ListenNode(ctx, node)
		})
		if err != nil {
			return nil, nil, err
		}
		return p, p, nil
	}
	netns, err := m.o.Sandboxes.NetworkNamespace(ctx, r.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	l, err := m.o.Listen(ctx, netns, Port(r.Spec))
	return l, nil, err
}

// listen makes what the target needs, and serves the source in the background.
func (m *targets) listen(ctx context.Context, v *table.VM, one *migration, peer link.Fingerprint, node netip.Addr) (err error) {
	r := v.Record()
	machine, err := m.machine(r, waiting(r))
	if err != nil {
		return err
	}
	whole := r.AsStarted()
	text, err := domain.XML(m.o.Describe(whole))
	if err != nil {
		return err
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if text, err = m.o.Hooks.OnDefineDomain(within, whole, text); err != nil { // libvirt compares it with the source's
		return err
	}
	taps, err := m.o.Life().PassTaps(within, v)
	if err != nil {
		return err
	}
	files, err := m.o.Disks.Attach(within, whole)
	closeAll := sync.OnceFunc(func() {
		closeFiles(files)
		if err := taps.Close(); err != nil {
			table.Logger(m.o.Logger, r).Warn("closing the socket for the VM's taps failed", "error", err)
		}
	})
	defer func() {
		if err != nil {
			closeAll()
			err = errors.Join(err, machine.Sockets.Remove())
		}
	}()
	if err != nil {
		return err
	}
	if err := machine.Sockets.MakeTarget(r.Domain.UID, r.Domain.GID); err != nil {
		return err
	}
	listener, own, err := m.listener(ctx, r, node)
	if err != nil {
		return err
	}
	rec := handover.NewIncoming(one.uid, r.Domain.UUID)
	if err := m.file(r).Put(rec); err != nil {
		return errors.Join(err, listener.Close())
	}
	inner := migrate.NewTarget(machine, m.o.Domains, migrate.Incoming{
		XML: text, Files: files, Prepared: func(ctx context.Context) error { return m.o.Life().Place(ctx, v) },
	})
	began := make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	target := handover.NewTarget(rec, &arriving{inner, m.node, v, one, closeAll}, m.file(r), m.o.Limits, m.observe(v, one.uid, func(s handover.Step) {
		if s == handover.StepDefining {
			begin()
		}
		if s == handover.StepTargetEnded {
			one.finished()
		}
	}))
	one.mu.Lock()
	one.target, one.address = target, listener.Addr().String()
	one.mu.Unlock()
	m.serve(v, one, link.NewListener(listener, one.identity, peer, inner.Serve(target)), own, began)
	return nil
}

const (
	// connectTime is how long a target waits for its source.
	connectTime = 5 * time.Minute
	// answerTime is how long a target answers a source that has lost the answer, unless another one needs its port.
	answerTime = 10 * time.Minute
)

// serve serves the source until the decision is carried out and known there.
func (m *targets) serve(v *table.VM, one *migration, l *link.Listener, own *port, began <-chan struct{}) {
	m.o.Tasks.Run(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m.o.Tasks.Run(func(context.Context) { m.attend(ctx, v, one, own, began); cancel() })
		if err := l.Run(ctx); err != nil {
			table.Logger(m.o.Logger, v.Record()).Error("serving a migration's source failed", "error", err)
		}
		m.o.Life().Free(v)
	})
}

// attend refuses a guest whose source does not connect, and carries out what failed. It
// returns when the listener is of no more use.
func (m *targets) attend(ctx context.Context, v *table.VM, one *migration, own *port, began <-chan struct{}) {
	select {
	case <-began:
	case <-v.Exited():
		return
	case <-time.After(connectTime):
		if err := one.target.Refuse(ctx, "the source did not connect"); err != nil {
			table.Logger(m.o.Logger, v.Record()).Warn("refusing a guest failed, retrying", "error", err)
		}
	case <-ctx.Done():
		return
	}
	for !one.target.Record().Ended && ctx.Err() == nil && !exited(v) {
		if one.target.Record().State != handover.Incoming {
			m.carryOut(ctx, v, one)
		}
		background.Sleep(ctx, retryPause)
	}
	select {
	case <-v.Exited():
	case <-time.After(answerTime):
	case <-own.answers():
	case <-ctx.Done():
	}
}

// carryOut carries out a target's decision.
func (m *targets) carryOut(ctx context.Context, v *table.VM, one *migration) {
	log := table.Logger(m.o.Logger, v.Record())
	err := one.target.Recover(ctx)
	switch {
	case errors.Is(err, handover.ErrLost):
		log.Warn("the guest ended after it had come", "migration", one.uid)
	case err != nil && ctx.Err() == nil:
		log.Warn("settling a migration failed, retrying", "migration", one.uid, "error", err)
	}
}

// end refuses the guest that a VM waits for. If the guest came meanwhile, that is no error.
func (m *targets) end(ctx context.Context, v *table.VM, reason string) error {
	s := m.of(v)
	s.orders.Lock()
	defer s.orders.Unlock()
	one, _ := s.last()
	if one == nil || one.ends() == nil || one.uid != v.Record().Incoming {
		return m.o.Life().Refuse(ctx, v, reason)
	}
	if err := one.target.Refuse(ctx, reason); err != nil && !errors.Is(err, handover.ErrLost) {
		return fmt.Errorf("refuse the guest of migration %s: %w", one.uid, err)
	}
	return nil
}

func closeFiles(groups map[string][]*os.File) {
	for _, list := range groups {
		for _, f := range list {
			f.Close()
		}
	}
}
