package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// CheckExec refuses a command that can't run in a guest, before its client gets a
// URL. The id is a running container's.
func (g *Guests) CheckExec(id string, r *runtimeapi.ExecRequest) error {
	v, err := g.table.Find(id)
	if err != nil {
		return err
	}
	if control, err := g.controls.find(r.GetCmd()); err != nil {
		return execFailed(v, err)
	} else if control != nil {
		return nil
	}
	if err := mayExec(g.pauses, g.agents, v); err != nil {
		return execFailed(v, err)
	}
	return nil
}

// mayExec returns why a guest runs no commands now; nil if it does.
func mayExec(p pauses, a *Agents, v *table.VM) error {
	if err := idle(p, v); err != nil {
		return err
	}
	if a.Of(v).Facts.State().Presence == agent.Absent {
		return agent.ErrAbsent
	}
	return nil
}

// idle returns why a guest does not run now as someone wants it, so that nothing in it answers; nil for others. A probe
// that gets an error does not count for the kubelet, which would end a paused VM otherwise. After an error of a disk,
// it shall.
func idle(p pauses, v *table.VM) error {
	if err := notHere(v); err != nil {
		return err
	}
	switch p.Paused(v) {
	case domain.ReasonNone, domain.ReasonIOError, domain.ReasonCrashed:
		return nil
	}
	return fmt.Errorf("%w: the guest is paused; unpause it first", vmerrors.ErrState)
}

// Exec runs a command in a guest, or a control of its VM, with a client's
// streams. An agent takes a command's input before its start, and returns the
// output after its end. A code other than 0 is a [stream.ExitError].
func (g *Guests) Exec(ctx context.Context, id string, command []string, s stream.Streams) error {
	v, err := g.table.Find(id)
	if err != nil {
		return err
	}
	end, err := g.streams.begin(v)
	if err != nil {
		return execFailed(v, err)
	}
	defer end()
	if control, err := g.controls.find(command); err != nil {
		return execFailed(v, err)
	} else if do := g.streamed(command); control != nil && do != nil {
		return do(ctx, v, s)
	} else if control != nil {
		return g.execControl(ctx, v, control, s)
	}
	if s.TTY {
		return g.interact(ctx, v, command, s)
	}
	if err := mayExec(g.pauses, g.agents, v); err != nil {
		return execFailed(v, err)
	}
	r, err := g.agents.Of(v).Commands.Exec(ctx, agent.Command{Args: command, Read: g.inputs.of(v, s.In)})
	if err != nil {
		return execFailed(v, err)
	}
	if err := deliver(s, r); err != nil {
		return execFailed(v, err)
	}
	if r.Code != 0 {
		return &stream.ExitError{Code: int(r.Code)}
	}
	return nil
}

// streamed returns what a control does with a client's streams; nil if it has none.
func (g *Guests) streamed(command []string) func(ctx context.Context, v *table.VM, s stream.Streams) error {
	switch {
	case len(command) == 0:
		return nil
	case command[0] == controlPrefix+controlConsole:
		return g.console
	case command[0] == controlPrefix+controlDisplay:
		return g.display
	case command[0] == controlPrefix+controlUSB:
		return g.usb
	case command[0] == controlPrefix+controlVSOCK:
		return func(ctx context.Context, v *table.VM, s stream.Streams) error {
			return g.vsock(ctx, v, s, command[1])
		}
	case command[0] == controlPrefix+controlConnect:
		return func(ctx context.Context, v *table.VM, s stream.Streams) error {
			return g.connect(ctx, v, s, command[1])
		}
	}
	return nil
}

func (g *Guests) execControl(ctx context.Context, v *table.VM, do control, s stream.Streams) error {
	out, err := do(orderedBy(ctx, v), v)
	if err != nil {
		return execFailed(v, err)
	}
	return deliver(s, agent.Result{Stdout: out})
}

// interact runs a command in a guest with a terminal.
func (g *Guests) interact(ctx context.Context, v *table.VM, command []string, s stream.Streams) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := s.Out
	if out == nil {
		out = io.Discard
	}
	code, err := g.agents.Of(v).Commands.Interact(ctx, agent.Session{Args: command, In: s.In, Out: out, Resize: sizes(ctx, s.Resize)})
	if err != nil {
		return execFailed(v, err)
	}
	if code != 0 {
		return &stream.ExitError{Code: int(code)}
	}
	return nil
}

// maxReply, in bytes, bounds the output in a reply. The kubelet takes no message
// above 16 MiB, and CRI wants the rest dropped without an error.
const maxReply = 16<<20 - 4096

// ExecSync runs a command in a guest and returns its output and its code. A
// timeout of 0 means no timeout; right after the VM's start, such a command waits for the agent.
func (g *Guests) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	v, err := g.table.Find(id)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("timeout %s exceeded: %w", timeout, context.DeadlineExceeded))
		defer cancel()
	}
	r, err := g.execNow(ctx, v, command, timeout <= 0)
	if err != nil {
		return nil, execFailed(v, err)
	}
	// If one stream is flooded, what the other one carries is kept.
	stderr := r.Stderr[:min(len(r.Stderr), max(maxReply-len(r.Stdout), maxReply/2))]
	stdout := r.Stdout[:min(len(r.Stdout), maxReply-len(stderr))]
	return &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: r.Code}, nil
}

func (g *Guests) execNow(ctx context.Context, v *table.VM, command []string, patient bool) (agent.Result, error) {
	control, err := g.controls.find(command)
	if err != nil {
		return agent.Result{}, err
	}
	ping := control != nil && command[0] == controlPrefix+controlPing
	if control == nil || ping {
		if err := idle(g.pauses, v); err != nil {
			return agent.Result{}, err
		}
	}
	if control == nil {
		if patient {
			g.awaitBoot(ctx, v)
		}
		r, err := g.agents.Of(v).Commands.Exec(ctx, agent.Command{Args: command})
		if errors.Is(err, agent.ErrNoProgram) {
			return failedProbe(err, codeNoProgram)
		}
		return r, err
	}
	out, err := control(orderedBy(ctx, v), v)
	if err != nil && ping {
		return failedProbe(err, 1)
	}
	return agent.Result{Stdout: out}, err
}

// codeNoProgram is a shell's for a program that is not there.
const codeNoProgram = 127

// failedProbe makes a code of an error: the kubelet does not count an error as a probe's failure.
func failedProbe(err error, code int32) (agent.Result, error) {
	return agent.Result{Stderr: []byte(err.Error() + "\n"), Code: code}, nil
}

func execFailed(v *table.VM, err error) error {
	r := v.Record()
	if errors.Is(err, agent.ErrGone) && r.Domain.PID == 0 {
		err = fmt.Errorf("%w: the VM ended", err)
	}
	return fmt.Errorf("exec in VM container %q of pod %s: %w", r.Config.Value.GetMetadata().GetName(), table.PodName(r), err)
}
