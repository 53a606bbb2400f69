package agent

import (
	"context"
	"errors"
	"fmt"
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

// SetKeys makes keys, which are lines of authorized_keys, the only SSH keys of a user
// whom the guest has. If the agent does not support that, it returns ErrDisabled.
func (a *Actions) SetKeys(ctx context.Context, user string, keys []string) error {
	return a.agent.call(ctx, "guest-ssh-add-authorized-keys", struct {
		User  string   `json:"username"`
		Keys  []string `json:"keys"`
		Reset bool     `json:"reset"`
	}{user, append([]string{}, keys...), true}, smallAnswer, nil)
}

// SetPassword sets the password of a user whom the guest has. If the agent does not
// support that, it returns ErrDisabled. Its errors have no text of the guest's, which
// could be the password.
func (a *Actions) SetPassword(ctx context.Context, user, password string) error {
	const command = "guest-set-user-password"
	err := a.agent.call(ctx, command, struct {
		User     string `json:"username"`
		Password []byte `json:"password"`
		Crypted  bool   `json:"crypted"`
	}{user, []byte(password), false}, smallAnswer, nil)
	_, refused := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, ErrDisabled):
		return fmt.Errorf("%s: %w", command, ErrDisabled)
	case refused:
		return fmt.Errorf("the guest agent refuses %s: check in the guest that the user exists, and that chpasswd works", command)
	case errors.Is(err, ErrGarbled):
		return fmt.Errorf("%s: %w", command, ErrGarbled)
	}
	return err
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
