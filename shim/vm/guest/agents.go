package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// largeAnswers is the number of agents' answers above one MiB that the shim
// reads at once, one of each namespace. Each may need some hundred MiB of memory.
const largeAnswers = bounds.LargeAnswers

// patience bounds a call to libvirtd for a caller that sets no deadline.
const patience = 30 * time.Second

// ports asks libvirtd about a guest; parts of [domain.Driver] do.
type ports interface {
	// AgentConnected reports whether the guest has its agent's port open.
	AgentConnected(ctx context.Context, uuid string) (bool, error)
	// ForgetTicks drops the interrupts of the hardware clock that the guest has missed.
	ForgetTicks(ctx context.Context, uuid string) error
}

// Agents holds the clients of the guests' agents.
type Agents struct {
	layout layout.Layout
	ports  ports
	tasks  *background.Tasks
	log    *slog.Logger
	// changed notes that something new is known of a guest.
	changed func(*table.VM)
	of      table.PerVM[*agent.Agent]
	access  table.PerVM[*access]
	clocks  *clocks
	// accessPause is the time between two looks at the Secrets of credentials.
	accessPause time.Duration
}

// NewAgents returns Agents. It calls changed, from any goroutine, whenever
// something new is known of a running guest.
func NewAgents(l layout.Layout, p ports, tasks *background.Tasks, log *slog.Logger, changed func(*table.VM)) *Agents {
	large := turns.New("the answers of other agents", largeAnswers, 1)
	a := &Agents{layout: l, ports: p, tasks: tasks, log: log, accessPause: accessPause}
	a.changed = func(v *table.VM) {
		if v.Record().State == record.Running {
			changed(v)
		}
	}
	a.clocks = newClocks(a)
	a.access.New = func(*table.VM) *access { return &access{end: func() {}} }
	a.of.New = func(v *table.VM) *agent.Agent {
		id := v.Record().ID
		return agent.New(agent.Options{
			Socket: l.AgentSocket(id), Terminals: commandTerminals(l, id), Large: large,
			Namespace: v.Record().Sandbox.Value.GetMetadata().GetNamespace(),
			Cards:     func() map[string]string { return v.Record().CardsByMAC() },
			Changed:   func() { a.changed(v) },
		})
	}
	return a
}

// commandTerminals are the guest's consoles on which commands may run.
func commandTerminals(l layout.Layout, id string) []agent.Terminal {
	var all []agent.Terminal
	for n, path := range l.TerminalSockets(id) {
		all = append(all, agent.Terminal{Device: fmt.Sprintf("/dev/hvc%d", n), Socket: path})
	}
	return all[1:]
}

// Of returns the client of a VM's guest agent.
func (a *Agents) Of(v *table.VM) *agent.Agent { return a.of.Of(v) }

// State returns what is known of a guest. It asks nothing.
func (a *Agents) State(v *table.VM) agent.State { return a.Of(v).Facts.State() }

// Recent returns what is known of a running guest, nil for one that does not
// run. It does not wait: it has what is old asked for, for the next call.
func (a *Agents) Recent(v *table.VM) *agent.State {
	if v.Record().State != record.Running {
		return nil
	}
	facts := a.Of(v).Facts
	if facts.Due() {
		a.tasks.Run(facts.Refresh)
	}
	s := facts.State()
	return &s
}

// Absent notes that the guest's agent is not there.
func (a *Agents) Absent(v *table.VM) {
	a.access.Of(v).begin(func() {}) // nothing is known of another agent
	a.Of(v).Port.Report(agent.Absent)
}

// PowerOff asks the agent to power the guest off.
func (a *Agents) PowerOff(ctx context.Context, v *table.VM) error {
	return a.Of(v).Actions.PowerOff(ctx)
}

// RemoveSockets removes the sockets of a guest that has ended.
func (a *Agents) RemoveSockets(id string) error {
	var errs []error
	all := slices.Concat(a.layout.TerminalSockets(id), a.layout.USBSockets(id))
	for _, path := range append(all, a.layout.AgentSocket(id), a.layout.MetricsSocket(id)) {
		errs = append(errs, layout.IgnoreAbsent(os.Remove(path)))
	}
	return errors.Join(errs...)
}

// Handle acts on an event of libvirtd's. It does not wait.
func (a *Agents) Handle(v *table.VM, e domain.Event) {
	r := v.Record()
	switch {
	case e.Kind == domain.EventResync && r.State == record.Running:
		resolve := a.Of(v).Port.Doubt()
		a.tasks.Run(func(ctx context.Context) { a.find(ctx, v, resolve) })
	case e.UUID != r.Domain.UUID:
	case e.Kind == domain.EventResumed:
		a.clocks.resumed(v)
	case e.Kind == domain.EventAgentConnected:
		a.Of(v).Port.Report(agent.Present)
		a.watch(v)
	case e.Kind == domain.EventAgentDisconnected:
		a.Absent(v)
	}
}

// find asks libvirtd whether the agent is there. If libvirtd does not answer,
// the next command finds out.
func (a *Agents) find(ctx context.Context, v *table.VM, resolve func(agent.Presence)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	there, err := a.ports.AgentConnected(ctx, v.Record().Domain.UUID)
	switch {
	case err != nil:
		table.Logger(a.log, v.Record()).Debug("finding the guest agent failed", "error", err)
	case there:
		resolve(agent.Present)
		a.watch(v)
	default:
		resolve(agent.Absent)
	}
}

// LookAgain has what a running guest's agent says asked for soon, since the guest has got or lost a device.
func (a *Agents) LookAgain(v *table.VM) { a.Of(v).Facts.Hasten() }

// watch asks an agent that came for what a status reports, and sets the guest's
// credentials and, after a pause, its clock.
func (a *Agents) watch(v *table.VM) {
	a.keepAccess(v)
	a.clocks.pay(v)
	a.tasks.Run(func(ctx context.Context) { a.Of(v).Facts.Watch(ctx, v.Exited()) })
}
