package move

import (
	"context"
	"net"
	"time"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

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
