package lifecycle

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/tracing"
)

// answers records when guests first answer: when their agents open the port. DHCP leases are
// dnsmasq's, which the shim does not ask.
type answers struct {
	table   *table.Table
	tasks   *background.Tasks
	tracing *tracing.Tracing
	log     *slog.Logger
	// seen is whether the guest has answered, so that one which opens its port again and again
	// causes no work.
	seen table.PerVM[*atomic.Bool]
}

func newAnswers(o Options) *answers {
	a := &answers{table: o.Table, tasks: o.Tasks, tracing: o.Tracing, log: o.Logger}
	a.seen.New = func(*table.VM) *atomic.Bool { return new(atomic.Bool) }
	return a
}

// note notes that a guest's agent is there. It does not wait.
func (a *answers) note(v *table.VM) {
	if a.seen.Of(v).Swap(true) {
		return
	}
	at := time.Now()
	a.tasks.Run(func(ctx context.Context) {
		if err := a.record(ctx, v, at); err != nil {
			table.Logger(a.log, v.Record()).Warn("recording the guest's first answer failed", "error", err)
		}
	})
}

// record adds the phase to the timeline of a guest that this node booted.
func (a *answers) record(ctx context.Context, v *table.VM, at time.Time) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	resume := slices.IndexFunc(r.Timeline, func(p record.Phase) bool { return p.Name == record.PhaseResume })
	known := slices.ContainsFunc(r.Timeline, func(p record.Phase) bool { return p.Name == record.PhaseAgent })
	if r.State != record.Running || r.Spec.StartPaused || resume < 0 || known {
		return nil
	}
	begun := r.Timeline[resume].Begun.Add(r.Timeline[resume].Took)
	r.Timeline = append(slices.Clone(r.Timeline), record.Phase{Name: record.PhaseAgent, Begun: begun, Took: at.Sub(begun)})
	pod := r.Sandbox.Value.GetMetadata()
	a.tracing.Past(ctx, "phase "+record.PhaseAgent, r.Trace, begun, at,
		append(tracing.Pod(pod.GetNamespace(), pod.GetName(), pod.GetUid()), tracing.ContainerID(r.ID))...)
	return a.table.Put(v, r)
}
