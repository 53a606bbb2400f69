package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Connected implements the driver's.
func (l *Libvirt) Connected(ctx context.Context) error {
	for {
		l.mu.Lock()
		away, changed := l.away, l.changed
		l.mu.Unlock()
		if !away {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("connect to libvirtd: %w: %w", domain.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// Start implements the driver's.
func (l *Libvirt) Start(ctx context.Context, uuid string, _ map[string][]*os.File) (int, error) {
	d, err := l.on(ctx, "Start", uuid)
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	if d.state.Status != domain.StatusShutoff {
		return 0, fmt.Errorf("start domain %s: %w", d.info.Name, domain.ErrRunning)
	}
	l.lastPID++
	d.state = domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser, PID: l.lastPID}
	d.memory, d.presses = d.ram, 0
	l.send(domain.Event{UUID: uuid, Kind: domain.EventStarted})
	l.notify()
	return d.state.PID, nil
}

// AwaitProcess implements the driver's.
func (l *Libvirt) AwaitProcess(ctx context.Context, name string) (int, error) {
	if err := l.script.enter(ctx, "Libvirt.AwaitProcess"); err != nil {
		return 0, err
	}
	for {
		l.mu.Lock()
		pid, changed := l.pidOf(name), l.changed
		l.mu.Unlock()
		if pid != 0 {
			return pid, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, expired(ctx, "await the process of domain "+name)
		}
	}
}

// AwaitEnd implements the driver's. It works while libvirtd is away.
func (l *Libvirt) AwaitEnd(ctx context.Context, name string, pid int) error {
	if err := l.script.enter(ctx, "Libvirt.AwaitEnd"); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		now, changed := l.pidOf(name), l.changed
		l.mu.Unlock()
		if now != pid {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("watch QEMU of domain %s: %w", name, context.Cause(ctx))
		}
	}
}

// pidOf returns the process id of a domain's QEMU, 0 if it does not run. The
// caller holds the mutex.
func (l *Libvirt) pidOf(name string) int {
	for _, d := range l.domains {
		if d.info.Name == name {
			return d.state.PID
		}
	}
	return 0
}

// Resume implements the driver's.
func (l *Libvirt) Resume(ctx context.Context, uuid string) error {
	d, err := l.onRunning(ctx, "Resume", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.state.Status == domain.StatusPaused {
		d.state.Status, d.state.Reason = domain.StatusRunning, domain.ReasonNone
		l.send(domain.Event{UUID: uuid, Kind: domain.EventResumed})
	}
	return nil
}

// Shutdown implements the driver's.
func (l *Libvirt) Shutdown(ctx context.Context, uuid string) error {
	d, err := l.onRunning(ctx, "Shutdown", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.presses++; d.presses == d.obeys {
		l.end(d, domain.ReasonShutdown)
	}
	return nil
}

// Destroy implements the driver's.
func (l *Libvirt) Destroy(ctx context.Context, uuid string) error {
	d, err := l.on(ctx, "Destroy", uuid)
	if errors.Is(err, domain.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	l.end(d, domain.ReasonDestroyed)
	return nil
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
