package move

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// errForgotten is why a source cannot ask its target after a restart.
var errForgotten = errors.New("the shim restarted, and the migration's certificate with it")

// Recover goes on with a VM's migration after a restart of the shim. It does not wait.
//
// A source that has not handed over keeps its guest. One that has waits for a decision
// from outside, since its certificate is lost. A target that has not decided refuses.
func (m *Moves) Recover(v *table.VM) {
	r := v.Record()
	rec, found, err := m.node.file(r).Get()
	log := table.Logger(m.node.o.Logger, r)
	if err != nil {
		log.Error("the record of a VM's migration cannot be used, and the guest is not resumed here", "error", err,
			"remedy", "find out which node runs the guest; then remove the record, and restart nodevirt-shim")
		s := m.node.of(v)
		s.mu.Lock()
		s.broken = fmt.Errorf("the last migration's: %w", err)
		s.mu.Unlock()
		return
	}
	if !found || r.Incoming != "" && rec.Migration != r.Incoming {
		m.targets.refuseWaiting(v)
		return
	}
	one, err := m.node.recovered(v, r, rec)
	if err != nil {
		log.Error("recovering a migration failed", "error", err)
		return
	}
	m.node.of(v).set(one)
	switch {
	case rec.Ended && r.Incoming == "":
		return
	case one.source != nil:
		dial := func(context.Context) (net.Conn, error) { return nil, errForgotten }
		m.node.o.Tasks.Run(func(ctx context.Context) { m.sources.settle(ctx, v, one, dial, nil) })
	case rec.Ended && rec.State == handover.Refused:
		m.targets.refuseWaiting(v)
	default:
		m.node.o.Tasks.Run(func(ctx context.Context) {
			for !one.target.Record().Ended && ctx.Err() == nil && !exited(v) {
				m.targets.carryOut(ctx, v, one)
				if !one.target.Record().Ended {
					background.Sleep(ctx, retryPause)
				}
			}
		})
	}
}

// recovered returns a migration as its record says.
func (m *node) recovered(v *table.VM, r record.Container, rec handover.Record) (*migration, error) {
	machine, err := m.machine(r, waiting(r))
	if err != nil {
		return nil, err
	}
	one := &migration{uid: rec.Migration}
	observe := m.observe(v, rec.Migration, func(s handover.Step) {
		if s == handover.StepTargetEnded {
			one.finished()
		}
	})
	switch rec.State {
	case handover.Incoming, handover.Taken, handover.Refused:
		inner := migrate.NewTarget(machine, m.o.Domains, migrate.Incoming{})
		one.target = handover.NewTarget(rec, &arriving{inner, m, v, one, func() {}}, m.file(r), m.o.Limits, observe)
	default:
		one.source = handover.NewSource(rec, leaving{migrate.NewSource(machine, nil), m, v}, m.file(r), m.o.Limits, observe)
	}
	return one, nil
}

// refuseWaiting ends a container that waited for a guest whose migration never began.
func (m *targets) refuseWaiting(v *table.VM) {
	if v.Record().Incoming == "" {
		return
	}
	m.o.Tasks.Run(func(ctx context.Context) {
		if err := m.o.Life().Refuse(ctx, v, "the shim of the target restarted"); err != nil && ctx.Err() == nil {
			table.Logger(m.o.Logger, v.Record()).Error("ending a container without a guest failed", "error", err)
		}
	})
}
