package agent

import (
	"context"
	"errors"
)

// Actions change the state of one guest by its agent. Its methods may be called
// concurrently.
type Actions struct {
	agent caller
	facts *Facts
}

// PowerOff asks the guest to shut down and power off.
func (a *Actions) PowerOff(ctx context.Context) error { return a.shutdown(ctx, "powerdown") }

// Reboot asks the guest to shut down and boot again.
func (a *Actions) Reboot(ctx context.Context) error { return a.shutdown(ctx, "reboot") }

// shutdown has no answer if it succeeds: the agent ends with its guest.
func (a *Actions) shutdown(ctx context.Context, mode string) error {
	err := a.agent.call(ctx, "guest-shutdown", map[string]string{"mode": mode}, smallAnswer, nil)
	if errors.Is(err, ErrGone) || errors.Is(err, ErrSilent) {
		return nil
	}
	return err
}

// Freeze stops the writes to the guest's file systems, and flushes what was written.
// It succeeds if they are frozen already.
func (a *Actions) Freeze(ctx context.Context) error {
	frozen, err := a.Frozen(ctx)
	if err != nil || frozen {
		return err
	}
	return a.then(ctx, a.agent.call(ctx, "guest-fsfreeze-freeze", nil, smallAnswer, nil))
}

// Thaw lets the guest write again. It succeeds if nothing is frozen.
func (a *Actions) Thaw(ctx context.Context) error {
	return a.then(ctx, a.agent.call(ctx, "guest-fsfreeze-thaw", nil, smallAnswer, nil))
}

// then refreshes the facts after an action.
func (a *Actions) then(ctx context.Context, err error) error {
	if err == nil {
		a.facts.Refresh(ctx)
	}
	return err
}

// Frozen reports whether the guest's file systems are frozen.
func (a *Actions) Frozen(ctx context.Context) (bool, error) { return frozen(ctx, a.agent) }

func frozen(ctx context.Context, c caller) (bool, error) {
	var status string
	err := c.call(ctx, "guest-fsfreeze-status", nil, smallAnswer, &status)
	return status == "frozen", err
}
