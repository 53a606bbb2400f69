package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// largeAnswers is how many answers of agents with more than a MiB are taken in
// at once: each may need some hundred MiB of memory.
const largeAnswers = 2

func (m *Manager) agentSocket(id string) string {
	return filepath.Join(m.AgentDir, id+".sock")
}

// consoles is how many consoles a machine has beside the serial one. The first
// is not for commands: systemd puts a login on it.
const consoles = 5

func (m *Manager) terminalSockets(id string) []string {
	var all []string
	for n := range consoles {
		all = append(all, filepath.Join(m.AgentDir, fmt.Sprintf("%s.%d", id, n)))
	}
	return all
}

func (m *Manager) terminals(id string) []agent.Terminal {
	var all []agent.Terminal
	for n, path := range m.terminalSockets(id) {
		all = append(all, agent.Terminal{Device: fmt.Sprintf("/dev/hvc%d", n), Socket: path})
	}
	return all[1:]
}

// agent is a machine's guest agent.
func (m *Manager) agent(c *machine) *agent.Agent {
	c.agentOnce.Do(func() {
		c.guestAgent = agent.New(m.agentSocket(c.record().ID), m.terminals(c.record().ID), m.largeAnswers)
		c.guestAgent.Notify(func() {
			if c.record().State == record.Running {
				m.tell(c)
			}
		})
	})
	return c.guestAgent
}

// heedAgent passes on what libvirtd tells of a machine's agent.
func (m *Manager) heedAgent(c *machine, e domain.Event) {
	r := c.record()
	switch {
	case e.Kind == domain.EventResync && r.State == record.Running:
		resolve := m.agent(c).Doubt()
		m.tasks.run(func(ctx context.Context) { m.findAgent(ctx, c, resolve) })
	case e.UUID != r.Domain.UUID:
	case e.Kind == domain.EventAgentConnected:
		m.agent(c).Tell(agent.Present)
		m.watchAgent(c)
	case e.Kind == domain.EventAgentDisconnected:
		m.agent(c).Tell(agent.Absent)
	}
}

// findAgent asks libvirtd whether an agent is there. Where that can't be found
// out, commands find it out.
func (m *Manager) findAgent(ctx context.Context, c *machine, resolve func(agent.Presence)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	there, err := m.Driver.AgentConnected(ctx, c.record().Domain.UUID)
	switch {
	case err != nil:
		m.log(c.record()).Debug("finding the guest agent failed", "error", err)
	case there:
		resolve(agent.Present)
		m.watchAgent(c)
	default:
		resolve(agent.Absent)
	}
}

// watchAgent has an agent that came asked what a status tells of it.
func (m *Manager) watchAgent(c *machine) {
	m.tasks.run(func(ctx context.Context) { m.agent(c).Watch(ctx, c.exited) })
}

// agentState is what is known of a guest by its agent, nil where no machine runs.
// It asks nobody: what is old is asked for by the next call.
func (m *Manager) agentState(c *machine) *agent.State {
	if c.record().State != record.Running {
		return nil
	}
	a := m.agent(c)
	if a.Due() {
		m.tasks.run(a.Refresh)
	}
	s := a.State()
	return &s
}

// removeAgent lets go of an agent whose machine is gone.
func (l *launch) removeAgent() error {
	if l.c != nil {
		l.agent(l.c).Tell(agent.Absent)
	}
	var errs []error
	for _, path := range append(l.terminalSockets(l.rec.ID), l.agentSocket(l.rec.ID)) {
		errs = append(errs, ignoreAbsent(os.Remove(path)))
	}
	return errors.Join(errs...)
}
