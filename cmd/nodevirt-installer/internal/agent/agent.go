// Package agent makes a node run VMs while the node has a label, and restores the node when the label
// is removed.
//
// It owns the order of the steps, and when they are tried again. It leaves the Node object to package
// cluster, and the node's files and services to package host. It keeps no state: each step can run
// again, so a pod that is killed at any time is continued by the next one.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The reasons of events on the Node.
const (
	Installed       = "Installed"
	InstallFailed   = "InstallFailed"
	Uninstalled     = "Uninstalled"
	UninstallFailed = "UninstallFailed"
)

// node is the Node object. [cluster.Node] implements it.
type node interface {
	// Labels returns the labels, as far as they are known, and a channel that is closed when they change.
	Labels() (labels map[string]string, changed <-chan struct{})
	// SetLabel sets a label, or removes it if value is nil.
	SetLabel(ctx context.Context, name string, value *string) error
	// Event reports to administrators. Failed events are warnings.
	Event(failed bool, reason, message string)
}

// host is the node's operating system. [host.Host] implements it.
type host interface {
	// Place puts the programs of the image on the node. It restarts a shim that runs others.
	Place(ctx context.Context) error
	// Run runs the command nodevirt on the node. The command ends even if this process is killed;
	// Run waits for an earlier one first.
	Run(ctx context.Context, args ...string) error
	// Remove deletes the programs from the node.
	Remove() error
}

// Agent keeps a node as its labels ask for.
type Agent struct {
	Node node
	Host host
	Log  *slog.Logger
	// Retry is the time until a failed step is tried again; it doubles up to MaxRetry.
	Retry, MaxRetry time.Duration

	mu   sync.Mutex
	last error
	done wish
}

// Ready returns nil if the node is as its labels ask for, otherwise the reason.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil {
		return a.last
	}
	if labels, _ := a.Node.Labels(); a.done == "" || wishOf(labels) != a.done {
		return fmt.Errorf("%s: in progress", wishOf(labels))
	}
	return nil
}

// Run keeps the node as its labels ask for until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	delay := a.Retry
	for ctx.Err() == nil {
		labels, changed := a.Node.Labels()
		want := wishOf(labels)
		err := a.fulfil(ctx, want)
		if ctx.Err() != nil {
			return // the next pod continues
		}
		a.finish(want, err)
		var again <-chan time.Time
		if err != nil {
			a.Log.Error("node is not as its labels ask for", "wish", want, "err", err, "retry", delay)
			again = time.After(delay)
			delay = min(2*delay, a.MaxRetry)
		}
		if a.wait(ctx, want, changed, again) || err == nil {
			delay = a.Retry
		}
	}
}

// wait returns when the labels ask for something else, which it reports, when it is time to try again,
// or when ctx ends.
func (a *Agent) wait(ctx context.Context, want wish, changed <-chan struct{}, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return false
		case <-changed:
		}
		var labels map[string]string
		if labels, changed = a.Node.Labels(); wishOf(labels) != want {
			return true
		}
	}
}

// finish records the result, and reports it to administrators.
func (a *Agent) finish(want wish, err error) {
	a.mu.Lock()
	before := a.done
	a.last, a.done = err, want
	if err != nil {
		a.done = ""
	}
	a.mu.Unlock()
	switch {
	case want == nothing || err == nil && before == want:
	case err != nil && want == install:
		a.Node.Event(true, InstallFailed, err.Error())
	case err != nil:
		a.Node.Event(true, UninstallFailed, err.Error())
	case want == install:
		a.Node.Event(false, Installed, "nodevirt is installed on this node")
	default:
		a.Node.Event(false, Uninstalled, "the node is as before nodevirt's installation")
	}
}

func (a *Agent) fulfil(ctx context.Context, want wish) error {
	switch want {
	case install:
		return a.install(ctx)
	case restore:
		return a.restore(ctx, "node", "uninstall")
	case force:
		return a.restore(ctx, "node", "uninstall", "--force")
	case nothing:
	}
	return nil
}

func (a *Agent) install(ctx context.Context) error {
	owner := Owner
	if err := a.Node.SetLabel(ctx, OwnerLabel, &owner); err != nil {
		return err
	}
	if err := a.Host.Place(ctx); err != nil {
		return err
	}
	return a.Host.Run(ctx, "node", "install")
}

// restore undoes install, in reverse order. The programs may be missing if an earlier one was killed.
func (a *Agent) restore(ctx context.Context, args ...string) error {
	if err := a.Host.Place(ctx); err != nil {
		return err
	}
	if err := a.Host.Run(ctx, args...); err != nil {
		return err
	}
	if err := a.Host.Remove(); err != nil {
		return err
	}
	return a.Node.SetLabel(ctx, OwnerLabel, nil)
}
