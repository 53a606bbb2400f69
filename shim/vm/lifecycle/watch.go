package lifecycle

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// watcher acts on libvirtd's events. After each new connection to libvirtd it
// looks at all VMs, since events may have been missed.
type watcher struct {
	table      *table.Table
	connection Connection
	agents     Agents
	conditions Conditions
	tasks      *background.Tasks

	ends     *ends
	resizer  *resizer
	disks    *diskKeeper
	dhcp     *dhcpKeeper
	late     *unanswered
	recovery *recovery
	answers  *answers
}

func newWatcher(o Options, e *ends, z *resizer, d *diskKeeper, k *dhcpKeeper, late *unanswered, r *recovery) *watcher {
	return &watcher{
		table: o.Table, connection: o.Connection, agents: o.Agents, conditions: o.Conditions, tasks: o.Tasks,
		ends: e, resizer: z, disks: d, dhcp: k, late: late, recovery: r, answers: newAnswers(o),
	}
}

// run acts on events until ctx ends. The keepers run beside it, for as long.
func (w *watcher) run(ctx context.Context, keepers ...func(context.Context)) error {
	events, unsubscribe := w.connection.Subscribe()
	defer unsubscribe()
	w.tasks.Run(func(context.Context) { w.watch(ctx, events) })
	for _, keep := range keepers {
		w.tasks.Run(func(context.Context) { keep(ctx) })
	}
	return w.connection.Run(ctx)
}

func (w *watcher) watch(ctx context.Context, events <-chan domain.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			w.handle(e)
		}
	}
}

// handle leaves the work to tasks, so that the next event does not wait.
func (w *watcher) handle(e domain.Event) {
	if e.Kind == domain.EventResync {
		w.tasks.Run(w.recovery.removeStrayDomains)
	}
	for _, uuid := range w.late.of(e) {
		w.tasks.Run(func(ctx context.Context) {
			if !w.late.remove(ctx, uuid) {
				w.tasks.Retry(cleanPause, nil, func(ctx context.Context) bool { return w.late.remove(ctx, uuid) })
			}
		})
	}
	for _, v := range w.table.All("") {
		w.agents.Handle(v, e)
		w.handleVM(v, e)
	}
}

func (w *watcher) handleVM(v *table.VM, e domain.Event) {
	r := v.Record()
	switch {
	case r.State == record.Running && r.Incoming != "":
		// Its migration watches it.
	case e.Kind == domain.EventResync && r.State == record.Running:
		w.tasks.Run(func(ctx context.Context) {
			w.ends.settleLogged(ctx, v)
			w.resizer.applyAgain(ctx, v)
			w.disks.restore(ctx, v)
		})
	case e.Kind == domain.EventResync && r.State == record.Exited && r.Unclean:
		w.tasks.Run(func(ctx context.Context) {
			if !w.ends.clean(ctx, v) {
				w.ends.cleanLater(v)
			}
		})
	case e.UUID != r.Domain.UUID:
	case e.Kind == domain.EventAgentConnected:
		w.answers.note(v)
	case e.Kind == domain.EventRebooted:
		w.tasks.Run(func(ctx context.Context) { w.dhcp.forgetClient(ctx, v) })
	case e.Kind == domain.EventCrashed:
		w.ends.of.Of(v).panicked.Store(true)
	case e.Kind == domain.EventWatchdog:
		w.ends.of.Of(v).unwatched.Store(r.Spec.Watchdog == vmspec.WatchdogPoweroff)
	case e.Kind == domain.EventStopped, e.Kind == domain.EventSuspended, e.Kind == domain.EventResumed && w.conditions.Paused(v) != domain.ReasonNone:
		w.tasks.Run(func(ctx context.Context) { w.ends.settleLogged(ctx, v) })
	}
}
