package lifecycle

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// forkHook is the guest's program that renews its identity.
	forkHook = "/etc/nodevirt/fork"
	// forkTime bounds the wait for the agent and the program.
	forkTime = time.Minute
	// forkEntropy is the number of random bytes on the program's stdin.
	forkEntropy = 64
	// maxForkOutput bounds what an error has of the program's output, in bytes.
	maxForkOutput = 512
)

// renewer has forks' guests renew their identities.
type renewer struct {
	agents Agents
	log    *slog.Logger
}

// renew returns the result for the record. A guest that was not made for it goes on with the identity of its
// checkpoint. One whose program fails does not start: it could take another guest's place.
func (n renewer) renew(ctx context.Context, v *table.VM, r record.Container) (*record.Fork, error) {
	keep := func(reason, message string) (*record.Fork, error) {
		table.Logger(n.log, r).Info("the guest has the identity of its checkpoint", "reason", message)
		return &record.Fork{Reason: reason, Message: message}, nil
	}
	switch {
	case r.Spec.StartPaused:
		return keep(condition.ReasonStartedPaused, "the VM starts paused, and its guest runs nothing yet")
	case !r.Restored.Agent:
		return keep(condition.ReasonNoAgent, "no guest agent ran when the checkpoint was saved: save it once the agent runs")
	}
	ctx, cancel := background.AtMost(ctx, forkTime)
	defer cancel()
	result, err := n.agents.Run(ctx, v, forkCommand(r))
	switch {
	case errors.Is(err, agent.ErrNoProgram):
		return keep(condition.ReasonNoHook, fmt.Sprintf("add an executable %s to the guest: %s", forkHook, fields.Clip(err.Error(), maxForkOutput)))
	case errors.Is(err, agent.ErrDisabled):
		return keep(condition.ReasonUnsupportedAgent, fields.Clip(err.Error(), maxForkOutput))
	case err != nil:
		return nil, fmt.Errorf("renew the guest's identity by %s: %w", forkHook, err)
	case result.Code != 0:
		return nil, fmt.Errorf("%w: renew the guest's identity: %s ended with code %d: %s", vmerrors.ErrState, forkHook, result.Code, forkOutput(result))
	}
	return &record.Fork{Reason: condition.ReasonRenewed}, nil
}

// forkCommand returns the program with the new identity: an argument for each part, and entropy on its stdin
// for guests that do not know their VM generation ID.
func forkCommand(r record.Container) agent.Command {
	entropy := make([]byte, forkEntropy)
	_, _ = rand.Read(entropy) // it never fails
	pod := r.Sandbox.Value.GetMetadata()
	return agent.Command{Input: entropy, Args: []string{
		forkHook,
		"HOSTNAME=" + r.Spec.Hostname,
		"INSTANCE_ID=" + vmspec.InstanceID(pod),
		"MACHINE_ID=" + strings.ReplaceAll(r.Domain.UUID, "-", ""),
		"POD_NAME=" + pod.GetName(),
		"POD_NAMESPACE=" + pod.GetNamespace(),
		"POD_UID=" + pod.GetUid(),
	}}
}

// forkOutput returns the end of what the program wrote, as printable text.
func forkOutput(r agent.Result) string {
	text := r.Stderr
	if len(text) == 0 {
		text = r.Stdout
	}
	text = text[max(len(text)-maxForkOutput, 0):]
	return fmt.Sprintf("%q", strings.ToValidUTF8(strings.TrimSpace(string(text)), "?"))
}
