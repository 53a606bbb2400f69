package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// A guest that moves is in two pods, whose interfaces may have its addresses: that pod is silent which does not have the
// guest, and the other one announces it. A CNI plug-in announces an address before the shim can stop it, and the other node
// may be late or have an older version. So announcements are repeated.

// announcePauses are the times between the announcements of a guest.
var announcePauses = []time.Duration{
	0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second,
}

// announcer has switches learn where guests are that could have moved.
type announcer struct {
	presence Presence
	moves    Moves
	tasks    *background.Tasks
	log      *slog.Logger
	// turns count a VM's announcements: a later one ends those that go on.
	turns table.PerVM[*atomic.Int64]
}

func newAnnouncer(o Options) *announcer {
	a := &announcer{presence: o.Presence, moves: o.Moves, tasks: o.Tasks, log: o.Logger}
	a.turns.New = func(*table.VM) *atomic.Int64 { return new(atomic.Int64) }
	return a
}

// Announce has switches learn that a VM's guest is here, as long as it is. It does not wait.
func (l *Lifecycle) Announce(v *table.VM) { l.starts.announcer.announce(v) }

func (a *announcer) announce(v *table.VM) {
	turn := a.turns.Of(v).Add(1)
	a.tasks.Run(func(ctx context.Context) {
		for _, pause := range announcePauses {
			select {
			case <-ctx.Done():
				return
			case <-v.Exited():
				return
			case <-time.After(pause):
			}
			r := v.Record()
			if a.turns.Of(v).Load() != turn || r.State != record.Running || r.Incoming != "" || !a.moves.Here(v) {
				return
			}
			if err := a.once(ctx, r); err != nil && ctx.Err() == nil {
				table.Logger(a.log, r).Warn("announcing a guest to its networks failed", "error", err)
			}
		}
	})
}

func (a *announcer) once(ctx context.Context, r record.Container) error {
	var errs []error
	for _, p := range networksOf(r) {
		errs = append(errs, a.presence.Own(ctx, p), a.presence.Announce(ctx, p))
	}
	return errors.Join(errs...)
}

// keep does for a guest that came before the shim restarted what may not have been done.
func (a *announcer) keep(v *table.VM) {
	if slices.ContainsFunc(networksOf(v.Record()), func(p netsetup.Plan) bool { return p.Waits }) {
		a.announce(v)
	}
	a.free(v)
}

// Free gives a guest that has come the port of its pod by which it came. It does not wait.
func (l *Lifecycle) Free(v *table.VM) { l.starts.announcer.free(v) }

// freePause is the time between two tries.
var freePause = background.Pause{First: time.Second, Limit: time.Minute}

func (a *announcer) free(v *table.VM) {
	if !slices.ContainsFunc(networksOf(v.Record()), reserves) {
		return
	}
	try := func(ctx context.Context) bool {
		r := v.Record()
		if r.State != record.Running || r.Incoming != "" {
			return true
		}
		var errs []error
		for _, p := range networksOf(r) {
			errs = append(errs, a.presence.Free(ctx, p))
		}
		err := errors.Join(errs...)
		if err != nil && ctx.Err() == nil {
			table.Logger(a.log, r).Warn("giving a guest the port of its migration failed, retrying", "error", err)
		}
		return err == nil
	}
	a.tasks.Run(func(ctx context.Context) {
		if !try(ctx) {
			a.tasks.Retry(freePause, v.Exited(), try)
		}
	})
}

func reserves(p netsetup.Plan) bool {
	return slices.ContainsFunc(p.NICs, func(n netsetup.NIC) bool { return n.Reserved != 0 })
}

// networksOf returns the networks of a VM's cards. Those in one pod are one.
func networksOf(r record.Container) []netsetup.Plan {
	var all []netsetup.Plan
	if r.Network != nil {
		whole := *r.Network
		whole.NICs = slices.Clone(whole.NICs)
		for _, c := range r.Cards {
			if r.SharesNetwork(c) {
				whole.NICs = append(whole.NICs, c.Network.NICs...)
			}
		}
		all = append(all, whole)
	}
	for _, c := range r.Cards {
		if !r.SharesNetwork(c) {
			all = append(all, c.Network)
		}
	}
	return slices.DeleteFunc(all, func(p netsetup.Plan) bool { return len(p.NICs) == 0 })
}

// leaveNetworks silences the pods of a guest that has left, or may have, or did not come.
func (t *teardown) leaveNetworks(ctx context.Context, r record.Container) error {
	if r.Reason != reasonMigrated && r.Reason != reasonHandedOver && r.Reason != reasonRefused {
		return nil
	}
	for _, p := range networksOf(r) {
		if err := t.presence.Leave(ctx, p); err != nil {
			return fmt.Errorf("leave the guest's networks: %w", err)
		}
	}
	return nil
}
