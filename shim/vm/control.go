package vm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// controlPrefix marks a command that is for the machine itself, not for its guest: so who may enter a
// pod can press its machine's buttons, and nobody needs another door. No program's path begins so,
// unless relative to a folder that agents don't run in.
const controlPrefix = "nodevirt.io/"

// controlPing asks whether the guest's agent answers.
const controlPing = "ping"

// control does something with a running machine, and returns what to print.
type control func(ctx context.Context, c *machine) ([]byte, error)

// controls are those that there are, by their names behind the prefix.
func (m *Manager) controls() map[string]control {
	return map[string]control{
		"pause":       m.button(m.Driver.Pause),
		"unpause":     m.button(m.Driver.Resume),
		"reset":       m.button(m.Driver.Reset),
		"reboot":      m.button(m.Driver.Reboot),
		"screenshot":  m.screenshot,
		controlPing:   m.pingAgent,
		"guest-info":  m.guestInfo,
		"users":       m.guestUsers,
		"filesystems": m.guestFilesystems,
	}
}

// controlOf is the control that a command asks for, nil if it is for the guest. Controls take no
// arguments.
func (m *Manager) controlOf(command []string) (control, error) {
	if len(command) == 0 {
		return nil, nil
	}
	name, ours := strings.CutPrefix(command[0], controlPrefix)
	if !ours {
		return nil, nil
	}
	all := m.controls()
	do, known := all[name]
	switch {
	case !known:
		return nil, fmt.Errorf("%w: there is no machine control %.80q: after %s comes one of %s", ErrInvalid, command[0],
			controlPrefix, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	case len(command) > 1:
		return nil, fmt.Errorf("%w: the machine control %s takes no arguments", ErrInvalid, command[0])
	}
	return do, nil
}

// button is a control that libvirtd alone carries out.
func (m *Manager) button(press func(ctx context.Context, uuid string) error) control {
	return func(ctx context.Context, c *machine) ([]byte, error) {
		ctx, cancel := atMost(ctx, patience)
		defer cancel()
		return nil, press(ctx, c.record().Domain.UUID)
	}
}
