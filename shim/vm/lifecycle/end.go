package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// ends notices that guests end, ends them, and removes containers.
type ends struct {
	table      *table.Table
	domains    ender
	owned      ownership
	observer   Observer
	processes  Processes
	witness    Witness
	libvirtd   connector
	disks      DiskMaker
	groups     Groups
	agents     Agents
	conditions Conditions
	events     Publisher
	moves      Moves
	tasks      *background.Tasks
	metrics    *metrics.Metrics
	layout     layout.Layout
	nodeStops  func(context.Context) bool
	nodeBooted func() time.Time
	nodeBootID func() string
	records    Records
	log        *slog.Logger

	down     *teardown
	pending  *pending
	errors   *diskErrors
	disputes *disputes
	of       table.PerVM[*endState]
}

// endState is what ends knows of one VM.
type endState struct {
	panicked  atomic.Bool // the guest's kernel reported a panic
	unwatched atomic.Bool // the guest's watchdog expired, and powers the VM off
	unserved  atomic.Bool // a virtiofsd ended before the VM
	noTPM     atomic.Bool // swtpm ended before the VM
	cleaning  atomic.Bool // cleanLater is at work
	disputing atomic.Bool // settleLater is at work
}

func newEnds(o Options, down *teardown, p *pending) *ends {
	e := &ends{
		table: o.Table, domains: o.Domains, observer: o.Observer, processes: o.Processes, witness: o.Witness, libvirtd: o.Connection,
		disks: o.DiskMaker, groups: o.Groups, agents: o.Agents, conditions: o.Conditions,
		events: o.Events, owned: ownership{o.Pods, o.Observer, o.Domains, o.Logger}, moves: o.Moves, tasks: o.Tasks, metrics: o.Metrics, layout: o.Layout, log: o.Logger,
		nodeStops: o.NodeStops, nodeBooted: o.NodeBooted, nodeBootID: o.NodeBootID, records: o.Records, down: down, pending: p, errors: newDiskErrors(o),
	}
	if e.nodeStops == nil {
		e.nodeStops = func(context.Context) bool { return false }
	}
	if e.nodeBooted == nil {
		e.nodeBooted = func() time.Time { return time.Time{} }
	}
	if e.nodeBootID == nil {
		e.nodeBootID = func() string { return "" }
	}
	e.of.New = func(*table.VM) *endState { return &endState{} }
	e.disputes = &disputes{witness: o.Witness, conditions: o.Conditions, tasks: o.Tasks, log: o.Logger, of: &e.of, settle: e.settle}
	return e
}

// patience bounds a call to libvirtd about a running domain, for a caller without
// a deadline too. A state that libvirtd did not return is asked for again with the
// next connection.
const patience = 30 * time.Second

func stateOf(ctx context.Context, o Observer, r record.Container) (domain.State, error) {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	return o.State(ctx, r.Domain.UUID)
}

// lockIfThere locks a VM and returns its record. Of a VM that is gone it locks nothing,
// and unlock is nil.
func lockIfThere(ctx context.Context, v *table.VM) (r record.Container, unlock func(), err error) {
	unlock, err = v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return r, nil, nil
	}
	if err != nil {
		return r, nil, err
	}
	return v.Record(), unlock, nil
}

// settle records the end of a guest that has ended, and undoes what was made for
// it. It changes no VM that runs, and none whose QEMU is there though libvirt says that the guest has ended.
func (e *ends) settle(ctx context.Context, v *table.VM) error {
	r, unlock, err := lockIfThere(ctx, v)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	if r.State != record.Running || r.Incoming != "" {
		return nil // the migration decides about a guest that comes
	}
	state, err := stateOf(ctx, e.observer, r)
	lost := errors.Is(err, domain.ErrNotFound)
	switch {
	case lost:
		state = domain.State{Status: domain.StatusShutoff, Reason: domain.ReasonFailed}
	case err != nil:
		return fmt.Errorf("ask for the state of VM container %q: %w", r.ID, whyUnavailable(e.groups, r, err))
	}
	if stoppedByDisk(state) {
		e.errors.resume(v)
	}
	if state.Status != domain.StatusShutoff {
		e.disputes.agree(v)
		e.conditions.SetState(v, state)
		return nil
	}
	if over, err := e.disputes.over(ctx, v, r, lost); err != nil || !over {
		return err
	}
	return e.finish(ctx, v, r, state.Reason)
}

// finish records an end. The caller has the VM's turn.
func (e *ends) finish(ctx context.Context, v *table.VM, r record.Container, reason domain.Reason) error {
	state := e.of.Of(v)
	if s := r.Saving; s != nil && s.Complete {
		return e.finishAs(ctx, v, r, ending{0, reasonSuspended, "the guest's memory is saved, and another pod can go on from it"})
	}
	if d, ok := e.moves.Departure(v); ok {
		return e.finishAs(ctx, v, r, departed(d))
	}
	end := endingOf(reason, r.Domain.Name, func() bool { return e.oomKilled(r) }, state.unserved.Load, state.panicked.Load, state.unwatched.Load,
		func() bool { return e.nodeStops(ctx) })
	if end == unexpected(r.Domain.Name) && e.nodeRestarted(r) {
		end = endedWithNode()
	}
	if state.noTPM.Load() && end.reason == reasonError && reason != domain.ReasonDestroyed {
		end.message += "; swtpm had ended before, and QEMU ends when such a guest is reset"
	}
	return e.finishAs(ctx, v, r, end)
}

// nodeRestarted reports whether the node booted since a VM's start. Times alone say so wrongly when the clock was set.
func (e *ends) nodeRestarted(r record.Container) bool {
	if now := e.nodeBootID(); now != "" && r.BootID != "" {
		return now != r.BootID
	}
	return r.StartedAt.Before(e.nodeBooted())
}

// finishAs records an end that is known.
func (e *ends) finishAs(ctx context.Context, v *table.VM, r record.Container, end ending) error {
	r.State, r.FinishedAt, r.Domain.PID = record.Exited, time.Now(), 0
	r.ExitCode, r.Reason, r.Message = end.code, end.reason, end.message
	// The end is on disk at once, since libvirt forgets it with the domain. It is
	// published when all is undone, so that a new container finds the pod free. The
	// kubelet learns of it even if the disk is full: a new shim would find it again.
	err := e.table.Save(r)
	if err := e.down.run(ctx, v, &r); err != nil {
		// Removing the container, and libvirtd's next connection, retry this too.
		table.Logger(e.log, r).Error("cleaning up after a VM failed, retrying", "error", err)
		defer e.cleanLater(v)
	}
	if err = errors.Join(err, e.table.Save(r)); err != nil {
		err = fmt.Errorf("record the end of VM container %q: %w", r.ID, err)
	}
	v.Publish(r)
	e.conditions.Update(v)
	table.Logger(e.log, r).Info("VM ended", "code", end.code, "reason", end.reason, "message", end.message)
	e.metrics.Ended(end.reason)
	e.events.Publish(r, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return err
}

// oomKilled reports whether the OOM killer ended a process of this VM. A group
// that is gone counts none.
func (e *ends) oomKilled(r record.Container) bool {
	n, err := e.groups.OOMKills(r)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		table.Logger(e.log, r).Warn("reading the OOM killer's count failed", "error", err)
	}
	return n > 0
}

func (e *ends) settleLogged(ctx context.Context, v *table.VM) {
	if err := e.settle(ctx, v); err != nil && ctx.Err() == nil {
		table.Logger(e.log, v.Record()).Error("asking for the state of a VM failed", "error", err)
	}
}

// settlePause is the time between questions about a VM whose process has ended.
// libvirtd mostly reports an end within milliseconds.
var settlePause = background.Pause{First: time.Second, Limit: 30 * time.Second}

// watch settles a running VM once its QEMU has ended, until libvirtd knows of the
// end too. libvirtd sends no event for a process that ended before a new libvirtd
// had found it again.
func (e *ends) watch(v *table.VM) {
	r := v.Record()
	e.tasks.Run(func(ctx context.Context) {
		log := table.Logger(e.log, r)
		if err := e.processes.AwaitEnd(ctx, r.Domain.Name, r.Domain.PID); err != nil {
			if ctx.Err() == nil {
				log.Error("watching a VM's process failed", "error", err)
			}
			return
		}
		e.tasks.Retry(settlePause, v.Exited(), func(ctx context.Context) bool {
			if err := e.settle(ctx, v); err != nil {
				log.Debug("asking for the state of a VM whose process has ended failed, retrying", "error", err)
			}
			return false // Exited ends it
		})
	})
}
