package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// accessPause is the usual time between two looks at a VM's Secrets. The kubelet takes
	// about a minute to renew them.
	accessPause = 5 * time.Second
	// maxAccessRetry bounds the time between two attempts to set what the guest's agent
	// has refused. The time begins as accessPause, and doubles.
	maxAccessRetry = 30 * time.Second
)

// access is the state of one guest's credentials. Nothing of it is recorded: another
// shim sets them again.
type access struct {
	turn sync.Mutex // held by what keeps the credentials

	mu    sync.Mutex
	end   func()                 // of what keeps them now
	state *podstatus.Credentials // nil until the agent that is there was tried
}

// begin ends what keeps the credentials, and notes what does from now on.
func (s *access) begin(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.end, s.state = end, nil
}

// set sets the state, and reports whether it is another one. Nothing changes once
// the credentials' keeper, whose context is ctx, has ended.
func (s *access) set(ctx context.Context, to podstatus.Credentials) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.state != nil && *s.state == to {
		return false
	}
	s.state = &to
	return true
}

// Credentials returns whether the guest has the credentials that its agent sets; nil for
// a VM without such, and if that is not known.
func (a *Agents) Credentials(v *table.VM) *podstatus.Credentials {
	if len(v.Record().Spec.Credentials) == 0 {
		return nil
	}
	if a.State(v).Presence == agent.Absent {
		return &podstatus.Credentials{Reason: condition.ReasonAgentDisconnected, Message: agent.ErrAbsent.Error()}
	}
	s := a.access.Of(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// keepAccess sets the credentials in a guest whose agent has come, and again whenever
// their Secrets change.
func (a *Agents) keepAccess(v *table.VM) {
	if len(v.Record().Spec.Credentials) == 0 {
		return
	}
	s := a.access.Of(v)
	a.tasks.Run(func(ctx context.Context) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		s.begin(end)
		s.turn.Lock()
		defer s.turn.Unlock()
		a.syncAccess(ctx, v)
	})
}

// syncAccess runs until ctx ends, the guest ends, or its agent is gone.
func (a *Agents) syncAccess(ctx context.Context, v *table.VM) {
	given := v.Record().Spec.Credentials
	var tried []string // the Secrets' versions
	var again time.Time
	for retry := a.accessPause; a.State(v).Presence != agent.Absent; {
		versions := versionsOf(given)
		if changed := !slices.Equal(tried, versions); changed || !again.IsZero() && time.Now().After(again) {
			err := a.setAccess(ctx, v, given)
			if changed {
				tried, retry = versions, a.accessPause
			}
			again = time.Time{}
			if err != nil {
				again, retry = time.Now().Add(retry-a.accessPause/2), min(2*retry, maxAccessRetry)
			}
			if a.State(v).Presence == agent.Absent {
				return
			}
			a.noteAccess(ctx, v, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-v.Exited():
			return
		case <-time.After(a.accessPause):
		}
	}
}

// versionsOf returns a text for each Secret, empty for one that cannot be read.
func versionsOf(given []vmspec.Credential) []string {
	var all []string
	for _, c := range given {
		version, _ := credential.Version(c.Secret) // setAccess returns the error
		all = append(all, version)
	}
	return all
}

// noteAccess reports and logs the result of an attempt, if it is another than the last.
func (a *Agents) noteAccess(ctx context.Context, v *table.VM, err error) {
	state := podstatus.Credentials{Reason: condition.ReasonSynchronized}
	switch {
	case errors.Is(err, agent.ErrDisabled):
		state = podstatus.Credentials{Reason: condition.ReasonUnsupportedAgent, Message: err.Error()}
	case err != nil:
		state = podstatus.Credentials{Reason: condition.ReasonSyncFailed, Message: err.Error()}
	}
	if !a.access.Of(v).set(ctx, state) {
		return
	}
	if err != nil {
		table.Logger(a.log, v.Record()).Warn("setting the guest's access credentials failed, retrying", "error", err)
	}
	a.changed(v)
}

// setAccess sets all credentials. It continues after an error, and returns all.
func (a *Agents) setAccess(ctx context.Context, v *table.VM, given []vmspec.Credential) error {
	keys, passwords, err := readAccess(given)
	errs := []error{err}
	do := a.Of(v).Actions
	for _, user := range slices.Sorted(maps.Keys(keys)) {
		if err := do.SetKeys(ctx, user, keys[user]); err != nil {
			errs = append(errs, fmt.Errorf("set the SSH keys of user %s: %w", user, err))
		}
	}
	for _, user := range slices.Sorted(maps.Keys(passwords)) {
		if err := do.SetPassword(ctx, user, passwords[user]); err != nil {
			errs = append(errs, fmt.Errorf("set the password of user %s: %w", user, err))
		}
	}
	return errors.Join(errs...)
}

// readAccess returns keys and passwords by users. A user with an unreadable Secret has no
// entry: the keys that the guest has stay.
func readAccess(given []vmspec.Credential) (keys map[string][]string, passwords map[string]string, err error) {
	keys, passwords = map[string][]string{}, map[string]string{}
	broken := map[string]bool{}
	var errs []error
	for _, c := range given {
		if len(c.Users) == 0 {
			more, err := credential.Passwords(c.Secret)
			errs = append(errs, err)
			maps.Copy(passwords, more)
			continue
		}
		more, err := credential.Keys(c.Secret)
		errs = append(errs, err)
		for _, user := range c.Users {
			keys[user] = append(keys[user], more...)
			broken[user] = broken[user] || err != nil
		}
	}
	maps.DeleteFunc(keys, func(user string, _ []string) bool { return broken[user] })
	return keys, passwords, errors.Join(errs...)
}
