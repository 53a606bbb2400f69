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

// checkAll returns an error for values that tgtd's requests, lists with commas, can't contain.
func (t Target) checkAll() error {
	if !filepath.IsAbs(t.Path) || strings.ContainsAny(t.Path, ",\x00\n") {
		return fmt.Errorf("serve %q over iSCSI: tgtd accepts only an absolute path without commas and line breaks: "+
			"give the shim's folders another path", t.Path)
	}
	return t.Check()
}

// make creates a target. No initiator can log in before the last step: tgtd refuses all while a target
// has no access rule. The only rule is the initiator's name: if a target had rules with addresses too,
// tgtd would accept an initiator that matches any of them.
func (d *Daemon) make(ctx context.Context, t Target) (err error) {
	id, err := d.freeID(ctx)
	if err != nil {
		return err
	}
	if err := d.removeAccount(ctx, t.User); err != nil { // of a removed target
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

// parameters returns the disk's parameters. Ranges that the guest frees are freed in the file.
func (t Target) parameters() string {
	p := "targetOps vendor_id=NODEVIRT,product_id=disk,thin_provisioning=1,"
	if t.ReadOnly {
		p += "readonly=1,"
	}
	return p
}

// remove removes a target's access rules, then its connections, then the target. tgtd closes a disk only
// when no request is in progress, which may have to wait for the file's disk.
func (d *Daemon) remove(ctx context.Context, t target) error {
	for _, rule := range t.allowed {
		if err := d.disallow(ctx, t, rule); err != nil {
			return err
		}
	}
	for _, n := range t.nexuses {
		if err := d.disconnect(ctx, t, n); err != nil {
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
			return fmt.Errorf("remove target: %w: %w", err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// disallow removes an access rule.
func (d *Daemon) disallow(ctx context.Context, t target, rule string) error {
	_, err := d.call(ctx, request{Mode: modeTarget, Op: opUnbind, Target: t.id}, ruleText(rule))
	if err := unless(err, codeACLNotPresent, codeNoTarget); err != nil {
		return fmt.Errorf("remove access rule: %w", err)
	}
	return nil
}

// ruleText returns an access rule in tgtd's syntax.
func ruleText(rule string) string {
	if isAddress(rule) {
		return "initiator-address=" + rule
	}
	return "initiator-name=" + rule
}

// disconnect ends a connection.
func (d *Daemon) disconnect(ctx context.Context, t target, n nexus) error {
	_, err := d.call(ctx, request{Mode: modeConnection, Op: opDelete, Target: t.id, Session: n.session, Connection: n.connection}, "")
	if err := unless(err, codeNoConnection, codeNoTarget, 6); err != nil {
		return fmt.Errorf("end connection of %s: %w", n.initiator, err)
	}
	return nil
}

// Break removes the disk from a target and keeps the target: from then on each request of an initiator
// fails. A target that doesn't exist is no error.
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
		return fmt.Errorf("remove the disk from iSCSI target %s: %w", name, err)
	}
	return nil
}

// removeAccount removes an account, which outlives its target in tgtd.
func (d *Daemon) removeAccount(ctx context.Context, user string) error {
	_, err := d.call(ctx, request{Mode: modeAccount, Op: opDelete}, "user="+user)
	if err := unless(err, codeNoUser); err != nil {
		return fmt.Errorf("remove account: %w", err)
	}
	return nil
}

// find returns the target with a name. Its id is 0 if there is none.
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

// freeID returns the lowest unused target number.
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
