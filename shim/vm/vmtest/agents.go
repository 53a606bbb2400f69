package vmtest

import (
	"context"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Agents is a fake of package guest's Agents.
type Agents struct {
	script *Script

	mu     sync.Mutex
	states map[string]agent.State
	access map[string]podstatus.Credentials

	commands []agent.Command
	result   agent.Result
}

// NewAgents returns Agents that know nothing.
func NewAgents(s *Script) *Agents {
	return &Agents{script: s, states: map[string]agent.State{}, access: map[string]podstatus.Credentials{}}
}

// Set sets what is known of a VM's guest.
func (a *Agents) Set(id string, s agent.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.states[id] = s
}

// SetCredentials sets whether a VM's guest has its credentials.
func (a *Agents) SetCredentials(id string, c podstatus.Credentials) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.access[id] = c
}

// Credentials implements guest's.
func (a *Agents) Credentials(v *table.VM) *podstatus.Credentials {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.access[v.Record().ID]; ok {
		return &c
	}
	return nil
}

// Handle implements guest's.
func (a *Agents) Handle(v *table.VM, e domain.Event) {
	if r := v.Record(); e.UUID == r.Domain.UUID && e.Kind == domain.EventAgentConnected {
		a.Set(r.ID, agent.State{Presence: agent.Present})
	}
}

// Absent implements guest's.
func (a *Agents) Absent(v *table.VM) {
	_ = a.script.note("Agents.Absent")
	a.Set(v.Record().ID, agent.State{Presence: agent.Absent})
}

// RemoveSockets implements guest's.
func (a *Agents) RemoveSockets(string) error { return a.script.note("Agents.RemoveSockets") }

// PowerOff implements guest's.
func (a *Agents) PowerOff(context.Context, *table.VM) error { return a.script.note("Agents.PowerOff") }

// Run implements guest's. It notes the program and its arguments; the test sets what the guest answers.
func (a *Agents) Run(ctx context.Context, _ *table.VM, c agent.Command) (agent.Result, error) {
	err := a.script.enter(ctx, "Agents.Run")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commands = append(a.commands, c)
	return a.result, err
}

// Ran returns the commands that have run.
func (a *Agents) Ran() []agent.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.commands)
}

// SetResult sets what commands return.
func (a *Agents) SetResult(r agent.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result = r
}

// State implements guest's.
func (a *Agents) State(v *table.VM) agent.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.states[v.Record().ID]; ok {
		return s
	}
	return agent.State{Presence: agent.Unknown}
}

// Recent implements guest's.
func (a *Agents) Recent(v *table.VM) *agent.State {
	if v.Record().State != record.Running {
		return nil
	}
	s := a.State(v)
	return &s
}
