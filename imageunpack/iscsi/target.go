package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checkAll refuses what can't be said to tgtd, whose requests are lists with commas.
func (t Target) checkAll() error {
	if !filepath.IsAbs(t.Path) || strings.ContainsAny(t.Path, ",\x00\n") {
		return fmt.Errorf("serve %q over iSCSI: tgtd takes an absolute path without commas and line breaks alone: "+
			"give the shim's folders another path", t.Path)
	}
	return t.Check()
}

// make makes a target. Nobody may log in until its last step: tgtd refuses everybody while a
// target has no access rule. The rule is the initiator's name alone; where a target has also rules
// about addresses, tgtd lets in who meets any of them.
func (d *Daemon) make(ctx context.Context, t Target) (err error) {
	id, err := d.freeID(ctx)
	if err != nil {
		return err
	}
	if err := d.removeAccount(ctx, t.User); err != nil { // of a target that is gone
		return err
	}
	steps := []struct {
		what string
		r    request
		text string
	}{
		{"make target", request{Mode: modeTarget, Op: opNew, Target: id}, "targetname=" + t.Name},
		{"make account", request{Mode: modeAccount, Op: opNew}, "user=" + t.User + ",password=" + t.Password.Reveal()},
		{"bind account", request{Mode: modeAccount, Op: opBind, Target: id}, "user=" + t.User},
		{"open " + t.Path, request{Mode: modeDevice, Op: opNew, Target: id, LUN: LUN}, "path=" + t.Path + ",bstype=rdwr"},
		{"set up disk", request{Mode: modeDevice, Op: opUpdate, Target: id, LUN: LUN}, t.parameters()},
		{"allow initiator", request{Mode: modeTarget, Op: opBind, Target: id}, "initiator-name=" + t.Initiator},
	}
	for i, s := range steps {
		_, err := d.call(ctx, s.r, s.text)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", s.what, err)
		if i > 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
			defer cancel()
			err = errors.Join(err, d.remove(ctx, target{id: id, name: t.Name}), d.removeAccount(ctx, t.User))
		}
		return err
	}
	return nil
}

// parameters are the disk's: what the guest frees is freed in the file.
func (t Target) parameters() string {
	p := "targetOps vendor_id=NODEVIRT,product_id=disk,thin_provisioning=1,"
	if t.ReadOnly {
		p += "readonly=1,"
	}
	return p
}

// remove shuts out whom a target lets in, then ends its connections, then the target. tgtd lets a
// disk go only when no request is under way, which can take until the file's disk has answered.
func (d *Daemon) remove(ctx context.Context, t target) error {
	for _, rule := range t.allowed {
		if err := d.shutOut(ctx, t, rule); err != nil {
			return err
		}
	}
	for _, n := range t.nexuses {
		if err := d.sendAway(ctx, t, n); err != nil {
			return err
		}
	}
	for {
		_, err := d.call(ctx, request{Mode: modeTarget, Op: opDelete, Target: t.id, Force: 1}, "")
		if err = unless(err, codeNoTarget); !errors.Is(err, ErrBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end target: %w: %w", err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// shutOut ends an access rule.
func (d *Daemon) shutOut(ctx context.Context, t target, rule string) error {
	_, err := d.call(ctx, request{Mode: modeTarget, Op: opUnbind, Target: t.id}, ruleText(rule))
	if err := unless(err, codeACLNotPresent, codeNoTarget); err != nil {
		return fmt.Errorf("shut out initiator: %w", err)
	}
	return nil
}

// ruleText is an access rule in tgtd's words.
func ruleText(rule string) string {
	if isAddress(rule) {
		return "initiator-address=" + rule
	}
	return "initiator-name=" + rule
}

// sendAway ends a connection.
func (d *Daemon) sendAway(ctx context.Context, t target, n nexus) error {
	_, err := d.call(ctx, request{Mode: modeConnection, Op: opDelete, Target: t.id, Session: n.session, Connection: n.connection}, "")
	if err := unless(err, codeNoConnection, codeNoTarget, 6); err != nil {
		return fmt.Errorf("end connection of %s: %w", n.initiator, err)
	}
	return nil
}

// Break takes the disk out of a target, which stays: each request of who uses it fails from then
// on. A target that isn't there is no error.
func (d *Daemon) Break(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.find(ctx, name)
	for err == nil && t.id != 0 {
		_, err = d.call(ctx, request{Mode: modeDevice, Op: opDelete, Target: t.id, LUN: LUN}, "")
		if !errors.Is(err, ErrBusy) {
			err = unless(err, codeNoTarget, codeNoLUN)
			break
		}
		err = nil
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		return fmt.Errorf("take the disk out of iSCSI target %s: %w", name, err)
	}
	return nil
}

// removeAccount forgets an account, which outlives its target in tgtd.
func (d *Daemon) removeAccount(ctx context.Context, user string) error {
	_, err := d.call(ctx, request{Mode: modeAccount, Op: opDelete}, "user="+user)
	if err := unless(err, codeNoUser); err != nil {
		return fmt.Errorf("remove account: %w", err)
	}
	return nil
}

// find is the target of a name; its id is 0 if there is none.
func (d *Daemon) find(ctx context.Context, name string) (target, error) {
	all, err := d.targets(ctx)
	if err != nil {
		return target{}, err
	}
	i := slices.IndexFunc(all, func(t target) bool { return t.name == name })
	if i < 0 {
		return target{}, nil
	}
	return all[i], nil
}

// freeID is the lowest number that no target has.
func (d *Daemon) freeID(ctx context.Context) (int32, error) {
	all, err := d.targets(ctx)
	if err != nil {
		return 0, err
	}
	taken := map[int32]bool{}
	for _, t := range all {
		taken[t.id] = true
	}
	id := int32(1)
	for taken[id] {
		id++
	}
	return id, nil
}

func (d *Daemon) targets(ctx context.Context) ([]target, error) {
	text, err := d.call(ctx, request{Mode: modeTarget, Op: opShow, Target: -1}, "")
	if err != nil {
		return nil, err
	}
	return parseTargets(text), nil
}
