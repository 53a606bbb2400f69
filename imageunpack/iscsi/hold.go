package iscsi

import (
	"context"
	"fmt"
	"slices"
)

// Hold restricts a target to one VM at a time, which is identified by its address. While an initiator is
// logged in, initiators at other addresses are refused, and disconnected if they are logged in. Call Hold
// again every few seconds: for so long a second initiator could be logged in. A target that doesn't exist
// is no error.
//
// tgtd has no such limit, and checks its access rules only at a login. So the rule is the initiator's name
// while none is logged in, and the address of the initiator afterwards, which can then reconnect after an
// outage. CHAP is required in both cases.
func (d *Daemon) Hold(ctx context.Context, a Access) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.find(ctx, a.Name)
	if err == nil && t.id != 0 {
		err = d.hold(ctx, t, a.Initiator)
	}
	if err != nil {
		return fmt.Errorf("restrict iSCSI target %s to one initiator: %w", a.Name, err)
	}
	return nil
}

func (d *Daemon) hold(ctx context.Context, t target, initiator string) error {
	if len(t.allowed) == 0 {
		return nil // incomplete
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
		if err := d.disallow(ctx, t, other); err != nil {
			return err
		}
	}
	for _, n := range t.nexuses {
		if n.address == rule {
			continue
		}
		if err := d.disconnect(ctx, t, n); err != nil {
			return err
		}
		d.opts.Logger.Warn("disconnected an initiator: the export is in use by another one",
			"target", t.name, "user", rule, "other", n.address)
	}
	return nil
}

// holder returns the address of the initiator that holds the target: the one at the last Hold, else the
// first that logged in. Session numbers increase.
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
