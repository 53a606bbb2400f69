package vmtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Libvirt is a fake of [domain.Driver]: a libvirtd whose domains are values. It
// has a connection from the start. Its parts are those of the driver.
type Libvirt struct {
	Connection *Connection
	Lifecycle  *Lifecycle
	Observer   *Observer
	Processes  *Processes
	Balloon    *Balloon
	Sizes      *Sizes
	Host       *Host
	Witness    *Witness

	script *Script

	mu      sync.Mutex
	away    bool
	changed chan struct{} // closed, and replaced, at each change
	domains map[string]*fakeDomain
	// forgotten are the QEMUs that run without a domain, by their process IDs.
	forgotten map[int]domain.Info
	lastPID   int
	listeners map[chan domain.Event]struct{}
}

// fakeDomain is a domain that is defined, or that runs.
type fakeDomain struct {
	info  domain.Info
	xml   string
	state domain.State
	// defined is what a start gives the domain, and size what it has. The maximums are those of both.
	defined, size domain.Size
	maximum       domain.Size
	memory        int64
	// Balloon is false for a guest that releases no memory.
	balloon bool
	// releases is as of [Guest], and released what the guest still has to come down to.
	releases, released int64
	agent              bool
	pins               domain.Pins
	// restored is the memory with which the domain started; empty for one that booted.
	restored string
	// variables is the path of the file to which the firmware writes; empty for the one of the XML.
	variables string
	// obeys is the number of the power button's press that the guest acts on; 0 for none.
	obeys, presses int
	// keep is false for a domain that was undefined while it ran.
	keep bool
}

// NewLibvirt returns a libvirtd without domains.
func NewLibvirt(s *Script) *Libvirt {
	l := &Libvirt{
		script: s, changed: make(chan struct{}), domains: map[string]*fakeDomain{}, forgotten: map[int]domain.Info{}, lastPID: 1 << 22,
		listeners: map[chan domain.Event]struct{}{},
	}
	l.Connection, l.Lifecycle, l.Observer = &Connection{l}, &Lifecycle{l}, &Observer{l}
	l.Processes, l.Balloon, l.Sizes, l.Host = &Processes{l}, &Balloon{l}, &Sizes{l}, &Host{libvirt: l}
	l.Witness = &Witness{libvirt: l}
	return l
}

// enter begins a call. It returns with the mutex held if it returns no error.
func (l *Libvirt) enter(ctx context.Context, call string) error {
	if ctx.Err() != nil {
		return expired(ctx, call)
	}
	err := l.script.enter(ctx, "Libvirt."+call)
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", expired(ctx, call), domain.ErrUnanswered)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.away {
		l.mu.Unlock()
		return fmt.Errorf("%s: %w", call, domain.ErrUnavailable)
	}
	return nil
}

// expired is the error of a call whose context ended first.
func expired(ctx context.Context, call string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: no answer in time: %w", call, domain.ErrUnavailable, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", call, context.Cause(ctx))
}

// on begins a call on a domain, as enter does.
func (l *Libvirt) on(ctx context.Context, call, uuid string) (*fakeDomain, error) {
	if err := l.enter(ctx, call); err != nil {
		return nil, err
	}
	d := l.domains[uuid]
	if d == nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("%s domain %s: %w", call, uuid, domain.ErrNotFound)
	}
	return d, nil
}

// onRunning is on for calls that need QEMU.
func (l *Libvirt) onRunning(ctx context.Context, call, uuid string) (*fakeDomain, error) {
	d, err := l.on(ctx, call, uuid)
	if err != nil {
		return nil, err
	}
	if d.state.Status == domain.StatusShutoff {
		l.mu.Unlock()
		return nil, fmt.Errorf("%s domain %s: %w", call, d.info.Name, domain.ErrNotRunning)
	}
	return d, nil
}

// notify wakes those that wait for a change. The caller holds the mutex.
func (l *Libvirt) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// pidOf returns the process id of a domain's QEMU, 0 if it does not run. The
// caller holds the mutex.
func (l *Libvirt) pidOf(name string) int {
	for _, d := range l.domains {
		if d.info.Name == name {
			return d.state.PID
		}
	}
	for pid, info := range l.forgotten {
		if info.Name == name {
			return pid
		}
	}
	return 0
}

// end ends a domain's QEMU, if there is one. The caller holds the mutex.
func (l *Libvirt) end(d *fakeDomain, reason domain.Reason) {
	if d.state.Status == domain.StatusShutoff {
		return
	}
	d.state = domain.State{Status: domain.StatusShutoff, Reason: reason}
	if !d.keep {
		delete(l.domains, d.info.UUID)
	}
	l.send(domain.Event{UUID: d.info.UUID, Kind: domain.EventStopped, Reason: reason})
	l.notify()
}

// send sends an event. The caller holds the mutex.
func (l *Libvirt) send(e domain.Event) {
	if l.away {
		return
	}
	for c := range l.listeners {
		c <- e // a test sends far fewer than there is room for
	}
}
