package agent

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// What a call of an agent can fail with, beside its context's error.
var (
	// ErrAbsent means that no agent has the guest's port open.
	ErrAbsent = errdefs.ErrFailedPrecondition.WithMessage("the guest agent does not run: " +
		"install and start qemu-guest-agent in the guest, or wait until it has booted")
	// ErrSilent means that an agent should be there and did not answer in time.
	ErrSilent = errdefs.ErrUnavailable.WithMessage("the guest agent does not answer: " +
		"see in the guest whether qemu-guest-agent hangs, and restart it")
	// ErrGone means that the agent, or the machine, ended before it answered.
	// Whether the command had an effect is not known.
	ErrGone = errdefs.ErrUnavailable.WithMessage("the guest agent went away while it was asked")
	// ErrGarbled means that the answer is none of a guest agent's.
	ErrGarbled = errdefs.ErrInternal.WithMessage("the guest agent's answer makes no sense")
	// ErrBusy means that too many commands run by this agent.
	ErrBusy = errdefs.ErrResourceExhausted.WithMessage("the guest agent is busy")
	// ErrDisabled means that the guest's agent doesn't do what it is asked to.
	ErrDisabled = errdefs.ErrFailedPrecondition.WithMessage("the guest agent's settings don't allow it")
	// ErrInvalid means that the agent could not be asked for such a thing.
	ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid command")
	// ErrNoTerminal means that the guest has no terminal for a command.
	ErrNoTerminal = errdefs.ErrFailedPrecondition.WithMessage("no terminal")
	// ErrNoProgram means that the guest has no program of that name that can be run.
	ErrNoProgram = errdefs.ErrUnknown.WithMessage("can't be run in the guest")
)

// refusal is an error that the agent answered with.
type refusal struct {
	command string
	class   string
	text    string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the guest agent refuses %s: %s", r.command, r.text)
}

// Unwrap makes a refusal of an unknown or disabled command ErrDisabled.
func (r *refusal) Unwrap() error {
	if r.class == "CommandNotFound" || strings.Contains(r.text, "disabled") {
		return ErrDisabled
	}
	return nil
}
