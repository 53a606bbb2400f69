package lifecycle

import (
	"context"
	"errors"
	"slices"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// later are the phases of a guest that boots. For one that comes from another node,
// package move does the same when the guest's source has connected.
func later() []string {
	return []string{"domain", "tags", "start", "board", "firmware", "process", "placement", "connect", record.PhaseResume, record.PhaseIdentity}
}

// phasesOf returns the phases of a container's start.
func (s *starts) phasesOf(r record.Container) ([]phase, error) {
	if r.Incoming == "" {
		return slices.DeleteFunc(phases(), func(p phase) bool { return p.name == record.PhaseIdentity && r.Fork == nil }), nil
	}
	if err := s.moves.Check(r); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(phases(), func(p phase) bool { return slices.Contains(later(), p.name) }), nil
}

// Place moves the QEMU that waits for a guest into the VM's cgroup, and the taps, which
// it has open, into the pod.
func (l *Lifecycle) Place(ctx context.Context, v *table.VM) error {
	r := v.Record()
	one := &start{parts: l.starts.parts, vm: v, rec: r, plan: r.Network}
	if err := one.awaitProcess(ctx); err != nil {
		return err
	}
	if err := one.placeQEMU(ctx); err != nil {
		return err
	}
	return one.connect(ctx)
}

// Admit records that the guest that a container waited for runs in it, or did.
func (l *Lifecycle) Admit(ctx context.Context, v *table.VM) error { return l.starts.admit(ctx, v) }

func (s *starts) admit(ctx context.Context, v *table.VM) error {
	r, unlock, err := lockIfThere(ctx, v)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	if r.State != record.Running || r.Incoming == "" {
		return nil
	}
	state, err := stateOf(ctx, s.ends.observer, r)
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return err
	}
	migration := r.Incoming
	r.Incoming, r.Domain.PID = "", state.PID
	if r.Domain.PID != 0 {
		r.Domain.Machine, err = s.ends.observer.MachineType(ctx, r.Domain.UUID)
		if err != nil && !errors.Is(err, domain.ErrNotFound) {
			return err
		}
	}
	if err := s.table.Put(v, r); err != nil {
		return err
	}
	s.helpers.keep(v)
	s.announcer.announce(v)
	if r.Domain.PID != 0 {
		s.placeThreads(ctx, r)
		if err := newTagger(s.parts).write(ctx, r); err != nil {
			table.Logger(s.log, r).Error("the guest's config drive has no tags of devices", "error", err)
		}
		s.ends.watch(v)
	}
	s.ends.tasks.Run(func(ctx context.Context) { s.ends.settleLogged(ctx, v) }) // also reports the state
	table.Logger(s.log, r).Info("the guest came from another node", "migration", migration, "pid", r.Domain.PID)
	return nil
}

// placeThreads places the threads of a guest that came, whose cgroup changed since libvirt
// did: while it comes, libvirt changes nothing of it. The guest runs without, too.
func (s *starts) placeThreads(ctx context.Context, r record.Container) {
	if err := (pinner{s.parts.describer, s.parts.domains}).pin(ctx, r); err != nil {
		table.Logger(s.log, r).Error("the guest's threads may be on each other's processors", "error", err)
	}
}

// Refuse ends a container whose guest does not come.
func (l *Lifecycle) Refuse(ctx context.Context, v *table.VM, reason string) error {
	return l.ends.refuse(ctx, v, reason)
}

func (e *ends) refuse(ctx context.Context, v *table.VM, reason string) error {
	r, unlock, err := lockIfThere(ctx, v)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	if r.State != record.Running || r.Incoming == "" {
		return nil
	}
	return e.finishAs(ctx, v, r, ending{codeRefused, reasonRefused, "the guest did not move here: " + reason})
}

// Settle records the end of a guest that has ended. It changes no VM that runs.
func (l *Lifecycle) Settle(ctx context.Context, v *table.VM) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	return l.ends.settle(ctx, v)
}

// endWaiting refuses the guest that a VM waits for, before its container stops.
func (e *ends) endWaiting(ctx context.Context, v *table.VM) error {
	if v.Record().Incoming == "" {
		return nil
	}
	return e.moves.End(ctx, v, "its container is stopped")
}
