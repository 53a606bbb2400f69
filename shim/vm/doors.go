package vm

import (
	"fmt"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Running returns the whole id of a container that runs; others are refused in
// containerd's words.
func (m *Manager) Running(id string) (string, error) {
	c, err := m.running(id)
	if err != nil {
		return "", err
	}
	return c.record().ID, nil
}

func (m *Manager) running(id string) (*machine, error) {
	c, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if state := c.record().State; state != record.Running {
		return nil, fmt.Errorf("container is in %s state", criState(state))
	}
	return c, nil
}

// RunsIn tells whether a machine runs in a sandbox, whose id is whole.
func (m *Manager) RunsIn(sandboxID string) bool {
	_, ok := m.runningIn(sandboxID)
	return ok
}

func (m *Manager) runningIn(sandboxID string) (*machine, bool) {
	for _, c := range m.all(sandboxID) {
		if c.record().State == record.Running {
			return c, true
		}
	}
	return nil, false
}
