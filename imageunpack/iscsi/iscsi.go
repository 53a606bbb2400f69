// Package iscsi serves files of the node to iSCSI initiators, through one tgtd.
//
// It owns tgtd's targets: their names, their access rules, and their restoration after a restart of
// tgtd. It leaves the start of tgtd to the service manager, and the content of the files and the list of
// targets to its caller.
//
// It uses tgtd's management socket and not tgtadm: every process of the node could read passwords in
// tgtadm's arguments.
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

// The errors of calls, for errors.Is.
var (
	// ErrUnavailable means that tgtd does not run or does not answer.
	ErrUnavailable = errdefs.ErrUnavailable.WithMessage("tgtd is not available")
	// errAway is an ErrUnavailable because tgtd does not run.
	errAway = errors.New("it does not run")
	// ErrPortTaken means that another program listens on the portal's port.
	ErrPortTaken = errdefs.ErrFailedPrecondition.WithMessage("the port is taken")
	// ErrBusy means that a target is still in use.
	ErrBusy = errdefs.ErrFailedPrecondition.WithMessage("in use")
)

// Options are the settings of a Daemon.
type Options struct {
	// Socket is tgtd's TGT_IPC_SOCKET. Its socket is this path followed by ".0".
	Socket string
	// Portal is the address at which initiators reach the targets.
	Portal netip.AddrPort
	Logger *slog.Logger
}

// Daemon is the node's tgtd. Its methods may be called at the same time.
type Daemon struct {
	opts Options
	mu   sync.Mutex // serialises changes, which look up numbers of targets and then use them
}

// New returns a Daemon. It does not contact tgtd.
func New(o Options) *Daemon { return &Daemon{opts: o} }

// Portal returns the address at which initiators reach the targets.
func (d *Daemon) Portal() netip.AddrPort { return d.opts.Portal }

// Target is a file that is served as a disk to one initiator.
type Target struct {
	// Access has the target's name and its credentials.
	Access
	// Path is the file, a raw disk. tgtd opens it as root.
	Path string
	// ReadOnly makes the disk read-only.
	ReadOnly bool
}

// LUN is the number of each target's one disk. LUN 0 is tgtd's own.
const LUN = 1

// Serve creates a target, unless it exists as described. It replaces a target that differs, or that an
// interrupted call left incomplete. This breaks the target's connections, and initiators connect again.
// Serve opens the portal first if needed.
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

// Remove removes a target with its connections and its account. It needs Name and User of a. It is no
// error if the target does not exist or tgtd does not run.
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

// Status is the state of a target.
type Status struct {
	Name string
	Path string
	// User is the account that can log in. It is empty while the target is incomplete.
	User string
	// Initiators are the names of the initiators that are logged in.
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

// End ends tgtd with all targets. It is for tests and for the end of a development node: tgtd ignores
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
