package agent

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// The errors of calls to an agent, beside that of their context.
var (
	// ErrAbsent is returned if no agent has opened the guest's port. Clients of KubeVirt's look for its first words.
	ErrAbsent = errdefs.ErrFailedPrecondition.WithMessage("QEMU guest agent is not connected: " +
		"install and start qemu-guest-agent in the guest, or wait until it has booted")
	// ErrSilent is returned if the agent did not answer in time.
	ErrSilent = errdefs.ErrUnavailable.WithMessage("the guest agent does not answer: " +
		"check in the guest whether qemu-guest-agent hangs, and restart it")
	// ErrGone is returned if the agent, or the VM, ended before it answered.
	// Whether the command had an effect is not known.
	ErrGone = errdefs.ErrUnavailable.WithMessage("the guest agent disconnected before it answered")
	// ErrGarbled is returned if the answer violates the protocol.
	ErrGarbled = errdefs.ErrInternal.WithMessage("invalid answer from the guest agent")
	// ErrBusy is returned if the agent runs too many commands.
	ErrBusy = errdefs.ErrResourceExhausted.WithMessage("the guest agent is busy")
	// ErrDisabled is returned if the agent's version or configuration does not allow a command.
	ErrDisabled = errdefs.ErrFailedPrecondition.WithMessage("the guest agent's configuration does not allow it")
	// ErrInvalid is returned for a command that cannot be encoded for the agent.
	ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid command")
	// ErrNoTerminal is returned if the guest cannot open a terminal for a command.
	ErrNoTerminal = errdefs.ErrFailedPrecondition.WithMessage("no terminal")
	// ErrNoProgram is returned if the guest cannot run the program.
	ErrNoProgram = errdefs.ErrUnknown.WithMessage("cannot be run in the guest")
)

// refusal is an error that the agent returned.
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
