package guest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// freezer is the program of KubeVirt's pods by which tools that back up PVCs, such as Velero, have a guest write nothing.
// Here it is a control: guests have no such program.
const freezer = "/usr/bin/virt-freezer"

// defaultFreeze is how long a guest is frozen at most, in seconds, if a command does not say it; as with KubeVirt.
const defaultFreeze = 300

// pauses says why guests' CPUs stand still; package report's Conditions does.
type pauses interface {
	Paused(v *table.VM) domain.Reason
}

// freezerControl returns what the freezer's arguments ask for, which are KubeVirt's. A guest that has no agent, or is
// paused, stays as it is, and that is no error: a backup of its disks is as good as after a power failure.
func freezerControl(f *Freezes, p pauses, args []string) (control, error) {
	flags := flag.NewFlagSet(freezer, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	freeze, thaw := flags.Bool("freeze", false, ""), flags.Bool("unfreeze", false, "")
	seconds := flags.Int("unfreezeTimeoutSeconds", defaultFreeze, "")
	for _, ignored := range []string{"name", "namespace"} { // the pod says them
		flags.String(ignored, "", "")
	}
	switch err := flags.Parse(args); {
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %.200s", vmerrors.ErrInvalid, freezer, err.Error())
	case *freeze == *thaw || flags.NArg() > 0:
		return nil, fmt.Errorf("%w: %s takes one of --freeze and --unfreeze", vmerrors.ErrInvalid, freezer)
	case *seconds < 0 || *seconds > int(math.MaxInt64/time.Second):
		return nil, fmt.Errorf("%w: %s: unfreezeTimeoutSeconds is negative or too large", vmerrors.ErrInvalid, freezer)
	}
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		if p.Paused(v) != domain.ReasonNone {
			return []byte("the guest is paused, and writes nothing\n"), nil
		}
		var err error
		if *freeze {
			err = f.Freeze(ctx, v, time.Duration(*seconds)*time.Second)
		} else {
			err = f.Thaw(ctx, v)
		}
		if errors.Is(err, agent.ErrAbsent) || errors.Is(err, agent.ErrDisabled) {
			return []byte("the guest's file systems were not frozen: " + err.Error() + "\n"), nil
		}
		return nil, err
	}, nil
}
