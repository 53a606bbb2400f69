package guest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/backup"
	"github.com/nodevirt/nodevirt/shim/vm/disowned"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug"
	"github.com/nodevirt/nodevirt/shim/vm/memorydump"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/save"
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

// controlKeepFrozen extends a freeze, and answers whether it has lasted until now.
const controlKeepFrozen = "keep-frozen"

// control does something with a running VM, and returns what to print.
type control func(ctx context.Context, v *table.VM) ([]byte, error)

// argued makes a control of the argument in its command.
type argued func(argument string) (control, error)

// controlPowerOff ends the guest at once, also while a stop waits for it to shut down.
const controlPowerOff = "power-off"

// power pauses, resets and ends domains; [domain.Lifecycle].
type power interface {
	Pause(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error
	Reset(ctx context.Context, uuid string) error
	Reboot(ctx context.Context, uuid string) error
	// Destroy ends a domain at once, without a word to its guest.
	Destroy(ctx context.Context, uuid string) error
}

// screens shows domains' displays; [domain.Observer].
type screens interface {
	Screenshot(ctx context.Context, uuid string) ([]byte, error)
}

// orders carry out machine controls of a part, each with an argument.
type orders interface {
	Do(ctx context.Context, v *table.VM, control, argument string) ([]byte, error)
}

// moves are the migrations of VMs; package move's Moves.
type moves interface {
	orders
	// MayResume reports whether the VM's guest is this node's to resume.
	MayResume(v *table.VM) bool
}

// controls are the names behind the prefix with what they do, without and with an
// argument.
type controls struct {
	plain map[string]control
	with  map[string]argued
	// freezer returns what [freezer]'s arguments ask for.
	freezer func(args []string) (control, error)
}

func newControls(o Options) controls {
	p, writes, asked := o.Power, o.Freezes, queries{o.Agents}
	lanes := &table.PerVM[*lane]{New: newLane}
	one := func(do control) control { return queued(lanes, do) }
	with := map[string]argued{
		"freeze": writes.freeze, controlKeepFrozen: writes.keep, controlConnect: connectWithoutStream,
		controlVSOCK: vsockWithoutStream,
	}
	for _, part := range []struct {
		orders
		controls []string
	}{
		{o.Moves, move.Controls()},
		{o.Hotplugs, hotplug.Controls()},
		{o.Dumps, memorydump.Controls()},
		{o.Backups, backup.Controls()},
		{o.Saves, save.Controls()},
		{o.Survey, disowned.Controls()},
	} {
		for _, name := range part.controls {
			with[name] = ordered(part.orders, name)
		}
	}
	asKubeVirt := func(args []string) (control, error) { return freezerControl(writes, o.Pauses, args) }
	return controls{with: with, freezer: asKubeVirt, plain: map[string]control{
		"unfreeze":     writes.thaw,
		controlConsole: consoleWithoutStream,
		controlDisplay: displayWithoutStream,
		controlUSB:     usbWithoutStream,
		"pause":        one(here(byLibvirt(p.Pause))),
		"unpause":      one(resume(o.Moves, byLibvirt(p.Resume))),
		"reset":        one(here(byLibvirt(p.Reset))),
		"reboot":       one(here(reboot(p, o.Agents))),
		"screenshot":   one(screenshot(o.Screens)),
		// It waits for no other control: one of these may be what hangs.
		controlPowerOff: byLibvirt(p.Destroy),
		controlPing:     asked.ping,
		"guest-info":    asked.info,
		"users":         asked.users,
		"filesystems":   asked.filesystems,
	}}
}

// names returns the controls' names, sorted.
func (c controls) names() []string {
	all := slices.Collect(maps.Keys(c.with))
	return slices.Sorted(slices.Values(slices.AppendSeq(all, maps.Keys(c.plain))))
}

// find returns the control that a command asks for, nil if the command is for
// the guest.
func (c controls) find(command []string) (control, error) {
	if len(command) == 0 {
		return nil, nil
	}
	if command[0] == freezer {
		return c.freezer(command[1:])
	}
	name, ours := strings.CutPrefix(command[0], controlPrefix)
	if !ours {
		return nil, nil
	}
	do, known := c.plain[name]
	switch with := c.with[name]; {
	case with != nil && len(command) == 2:
		return with(command[1])
	case with != nil:
		return nil, fmt.Errorf("%w: the machine control %s takes one argument", vmerrors.ErrInvalid, command[0])
	case !known:
		return nil, fmt.Errorf("%w: there is no machine control %.80q: after %s comes one of %s", vmerrors.ErrInvalid, command[0],
			controlPrefix, strings.Join(c.names(), ", "))
	case len(command) > 1:
		return nil, fmt.Errorf("%w: the machine control %s takes no arguments", vmerrors.ErrInvalid, command[0])
	}
	return do, nil
}

// ordered is a control that a part carries out.
func ordered(o orders, name string) argued {
	return func(argument string) (control, error) {
		return func(ctx context.Context, v *table.VM) ([]byte, error) { return o.Do(ctx, v, name, argument) }, nil
	}
}

// here is a control that needs a guest, and not one that is still to come, or is being saved.
func here(do control) control {
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		if err := notHere(v); err != nil {
			return nil, err
		}
		return do(ctx, v)
	}
}

// notHere returns why a guest can do nothing, which is still to come or is being saved; nil for others.
func notHere(v *table.VM) error {
	r := v.Record()
	if r.Incoming != "" {
		return fmt.Errorf("%w: the VM waits for its guest, in migration %s", vmerrors.ErrState, r.Incoming)
	}
	if r.Saving != nil {
		return fmt.Errorf("%w: the guest is paused while its memory is saved", vmerrors.ErrState)
	}
	return nil
}

// resume is a control that resumes a guest, unless another node may run it.
func resume(m moves, do control) control {
	return here(func(ctx context.Context, v *table.VM) ([]byte, error) {
		if !m.MayResume(v) {
			return nil, fmt.Errorf("%w: the guest is moving to another node, which may run it", vmerrors.ErrState)
		}
		return do(ctx, v)
	})
}

// reboot presses the power button, or asks the agent of a guest that has none.
func reboot(p power, a *Agents) control {
	press := byLibvirt(p.Reboot)
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		if v.Record().Spec.NoACPI {
			return nil, a.Of(v).Actions.Reboot(ctx)
		}
		return press(ctx, v)
	}
}

// byLibvirt is a control that libvirtd alone carries out.
func byLibvirt(do func(ctx context.Context, uuid string) error) control {
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		ctx, cancel := background.AtMost(ctx, patience)
		defer cancel()
		return nil, do(ctx, v.Record().Domain.UUID)
	}
}
