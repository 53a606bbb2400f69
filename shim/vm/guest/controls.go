package guest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlPrefix marks a command for the VM itself, not for its guest. So a user
// who may run commands in a pod may control its VM, and the VM needs no other
// interface. No program's path begins with the prefix, unless it is relative to
// a folder in which agents don't run.
const controlPrefix = "nodevirt.io/"

// controlPing asks whether the guest's agent answers.
const controlPing = "ping"

// control does something with a running VM, and returns what to print.
type control func(ctx context.Context, v *table.VM) ([]byte, error)

// power pauses and resets domains; [domain.Lifecycle].
type power interface {
	Pause(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error
	Reset(ctx context.Context, uuid string) error
	Reboot(ctx context.Context, uuid string) error
}

// screens shows domains' displays; [domain.Observer].
type screens interface {
	Screenshot(ctx context.Context, uuid string) ([]byte, error)
}

// controls maps the names behind the prefix to what they do.
type controls map[string]control

func newControls(p power, s screens, a *Agents) controls {
	asked := queries{a}
	return controls{
		"pause":       byLibvirt(p.Pause),
		"unpause":     byLibvirt(p.Resume),
		"reset":       byLibvirt(p.Reset),
		"reboot":      byLibvirt(p.Reboot),
		"screenshot":  screenshot(s),
		controlPing:   asked.ping,
		"guest-info":  asked.info,
		"users":       asked.users,
		"filesystems": asked.filesystems,
	}
}

// find returns the control that a command asks for, nil if the command is for
// the guest. Controls take no arguments.
func (c controls) find(command []string) (control, error) {
	if len(command) == 0 {
		return nil, nil
	}
	name, ours := strings.CutPrefix(command[0], controlPrefix)
	if !ours {
		return nil, nil
	}
	do, known := c[name]
	switch {
	case !known:
		return nil, fmt.Errorf("%w: there is no machine control %.80q: after %s comes one of %s", vmerrors.ErrInvalid, command[0],
			controlPrefix, strings.Join(slices.Sorted(maps.Keys(c)), ", "))
	case len(command) > 1:
		return nil, fmt.Errorf("%w: the machine control %s takes no arguments", vmerrors.ErrInvalid, command[0])
	}
	return do, nil
}

// byLibvirt is a control that libvirtd alone carries out.
func byLibvirt(do func(ctx context.Context, uuid string) error) control {
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		ctx, cancel := background.AtMost(ctx, patience)
		defer cancel()
		return nil, do(ctx, v.Record().Domain.UUID)
	}
}
