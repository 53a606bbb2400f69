// Package iscsi serves files of the node to iSCSI initiators, through one tgtd.
//
// It owns tgtd's targets: their names, who may log in, and how they are put back when tgtd was
// restarted. tgtd itself is the service manager's to start; what a target's file holds, and which
// targets there should be, is the caller's business.
//
// It speaks to tgtd by tgtd's own management socket and not by tgtadm, in whose arguments every
// process of the node could read passwords.
package iscsi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/containerd/errdefs"
)

// What calls can fail with, to be told apart with errors.Is.
var (
	// ErrUnavailable says that tgtd is away or does not answer.
	ErrUnavailable = errdefs.ErrUnavailable.WithMessage("tgtd is not available")
	// errAway says of ErrUnavailable that there is no process.
	errAway = errors.New("it does not run")
	// ErrPortTaken says that the portal's port is another program's.
	ErrPortTaken = errdefs.ErrFailedPrecondition.WithMessage("the port is taken")
	// ErrBusy says that a target is still in use.
	ErrBusy = errdefs.ErrFailedPrecondition.WithMessage("in use")
)

// Options say which tgtd is used, and where it listens.
type Options struct {
	// Socket is what tgtd was given as TGT_IPC_SOCKET; its socket is this path with ".0" added.
	Socket string
	// Portal is where initiators reach the targets.
	Portal netip.AddrPort
	Logger *slog.Logger
}

// Daemon is the node's tgtd. Its methods may be called at the same time.
type Daemon struct {
	opts Options
	mu   sync.Mutex // one change at a time: numbers of targets are looked up and then used
}

// New returns a Daemon. It reaches for tgtd only when a method is called.
func New(o Options) *Daemon { return &Daemon{opts: o} }

// Portal is where initiators reach the targets.
func (d *Daemon) Portal() netip.AddrPort { return d.opts.Portal }

// Target is a file that is served as a disk to one initiator.
type Target struct {
	// Access says how the target is called and who may log in.
	Access
	// Path is the file, a raw disk. tgtd opens it as root.
	Path string
	// ReadOnly refuses writes.
	ReadOnly bool
}

// LUN is the number of each target's one disk. LUN 0 is tgtd's own.
const LUN = 1

// Serve makes a target, or leaves it alone if it is there as it should be. One that is there in
// another way, or was left half made by a caller that died, is made anew, which breaks the
// connections it has: initiators connect again. The portal is opened first where it is not yet.
func (d *Daemon) Serve(ctx context.Context, t Target) error {
	if err := t.checkAll(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	found, err := d.find(ctx, t.Name)
	if err == nil && found.serves(t) {
		return d.openPortal(ctx)
	}
	if err == nil && found.id != 0 {
		err = d.remove(ctx, found)
	}
	if err == nil {
		err = d.make(ctx, t)
	}
	if err == nil {
		err = d.openPortal(ctx)
	}
	if err != nil {
		return fmt.Errorf("serve iSCSI target %s: %w", t.Name, err)
	}
	return nil
}

// Remove ends a target, with the connections that it has, and forgets its account. Of a it needs
// Name and User. A target that isn't there is no error, nor is a tgtd that isn't: it has none.
func (d *Daemon) Remove(ctx context.Context, a Access) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, err := d.find(ctx, a.Name)
	if errors.Is(err, errAway) {
		return nil
	}
	if err == nil && found.id != 0 {
		err = d.remove(ctx, found)
	}
	if err == nil && a.User != "" {
		err = d.removeAccount(ctx, a.User)
	}
	if err != nil {
		return fmt.Errorf("remove iSCSI target %s: %w", a.Name, err)
	}
	return nil
}

// Status is what tgtd tells of a target.
type Status struct {
	Name string
	Path string
	// User is the account's that can log in; empty while the target is half made.
	User string
	// Initiators are those that are logged in, by their names.
	Initiators []string
}

// List returns tgtd's targets.
func (d *Daemon) List(ctx context.Context) ([]Status, error) {
	all, err := d.targets(ctx)
	if err != nil {
		return nil, fmt.Errorf("list iSCSI targets: %w", err)
	}
	list := make([]Status, 0, len(all))
	for _, t := range all {
		s := Status{Name: t.name, Path: t.path}
		if len(t.accounts) > 0 {
			s.User = t.accounts[0]
		}
		for _, n := range t.nexuses {
			s.Initiators = append(s.Initiators, n.initiator)
		}
		list = append(list, s)
	}
	return list, nil
}

// End ends tgtd, with all targets. It is for tests and for the end of a node: tgtd heeds no
// SIGTERM.
func (d *Daemon) End(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.targets(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if err := d.remove(ctx, t); err != nil {
			return err
		}
	}
	_, err = d.call(ctx, request{Mode: modeSystem, Op: opDelete}, "")
	return err
}
