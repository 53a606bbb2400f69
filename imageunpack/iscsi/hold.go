package iscsi

import (
	"context"
	"fmt"
	"slices"
)

// Hold keeps a target to one machine at a time, known by its address: while an initiator is logged in, who
// comes from elsewhere is not let in, and sent away if he is in. It has to be called again every few seconds,
// which is how long a second one could be in. A target that isn't there is no error.
//
// tgtd has no such limit of its own. Its access rules are asked at a login alone: so the rule is the
// initiator's name while nobody is in, and his address afterwards, by which he can come back after an outage.
// CHAP is asked for in both cases.
func (d *Daemon) Hold(ctx context.Context, a Access) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.find(ctx, a.Name)
	if err == nil && t.id != 0 {
		err = d.hold(ctx, t, a.Initiator)
	}
	if err != nil {
		return fmt.Errorf("keep iSCSI target %s to one initiator: %w", a.Name, err)
	}
	return nil
}

func (d *Daemon) hold(ctx context.Context, t target, initiator string) error {
	if len(t.allowed) == 0 {
		return nil // half made
	}
	rule := initiator
	if len(t.nexuses) > 0 {
		rule = t.holder()
	}
	if !slices.Contains(t.allowed, rule) {
		_, err := d.call(ctx, request{Mode: modeTarget, Op: opBind, Target: t.id}, ruleText(rule))
		if err != nil {
			return fmt.Errorf("allow %s: %w", rule, err)
		}
	}
	for _, other := range t.allowed {
		if other == rule {
			continue
		}
		if err := d.shutOut(ctx, t, other); err != nil {
			return err
		}
	}
	for _, n := range t.nexuses {
		if n.address == rule {
			continue
		}
		if err := d.sendAway(ctx, t, n); err != nil {
			return err
		}
		d.opts.Logger.Warn("an export is in use, and somebody else who wanted it was sent away",
			"target", t.name, "user", rule, "other", n.address)
	}
	return nil
}

// holder is the address of who is in: who was already when the target was looked at before, else who came
// first. Sessions are numbered as they come.
func (t target) holder() string {
	first := t.nexuses[0]
	for _, n := range t.nexuses {
		if slices.Contains(t.allowed, n.address) {
			return n.address
		}
		if n.session < first.session {
			first = n
		}
	}
	return first.address
}
