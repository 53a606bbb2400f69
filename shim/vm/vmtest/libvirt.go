package vmtest

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Libvirt is a fake of [domain.Driver]: a libvirtd whose domains are values. It
// has a connection from the start.
type Libvirt struct {
	script *Script

	mu        sync.Mutex
	away      bool
	changed   chan struct{} // closed, and replaced, at each change
	domains   map[string]*fakeDomain
	lastPID   int
	listeners map[chan domain.Event]struct{}
}

// fakeDomain is a domain that is defined, or that runs.
type fakeDomain struct {
	info   domain.Info
	state  domain.State
	ram    int64
	memory int64
	// Balloon is false for a guest that releases no memory.
	balloon bool
	agent   bool
	// obeys is the number of the power button's press that the guest acts on; 0 for none.
	obeys, presses int
	// keep is false for a domain that was undefined while it ran.
	keep bool
}

// NewLibvirt returns a libvirtd without domains.
func NewLibvirt(s *Script) *Libvirt {
	return &Libvirt{
		script: s, changed: make(chan struct{}), domains: map[string]*fakeDomain{}, lastPID: 1 << 22,
		listeners: map[chan domain.Event]struct{}{},
	}
}

// enter begins a call. It returns with the mutex held if it returns no error.
func (l *Libvirt) enter(ctx context.Context, call string) error {
	err := ctx.Err()
	if err == nil {
		err = l.script.enter(ctx, "Libvirt."+call)
	}
	if ctx.Err() != nil {
		return expired(ctx, call)
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

// Define implements the driver's.
func (l *Libvirt) Define(ctx context.Context, text string) error {
	var x struct {
		Name   string `xml:"name"`
		UUID   string `xml:"uuid"`
		Memory int64  `xml:"memory"` // MiB
		VM     struct {
			Container struct {
				ID   string `xml:"id,attr"`
				Name string `xml:"name,attr"`
			} `xml:"container"`
			Pod struct {
				Namespace string `xml:"namespace,attr"`
				Name      string `xml:"name,attr"`
			} `xml:"pod"`
		} `xml:"metadata>vm"`
	}
	if err := xml.Unmarshal([]byte(text), &x); err != nil {
		return fmt.Errorf("define domain: %w", err)
	}
	if err := l.enter(ctx, "Define"); err != nil {
		return err
	}
	defer l.mu.Unlock()
	d := l.domains[x.UUID]
	if d == nil {
		d = &fakeDomain{state: domain.State{Status: domain.StatusShutoff, Reason: domain.ReasonNeverRan}, balloon: true}
		l.domains[x.UUID] = d
	}
	d.keep, d.ram = true, x.Memory<<20
	d.info = domain.Info{
		UUID: x.UUID, Name: x.Name, ContainerID: x.VM.Container.ID, ContainerName: x.VM.Container.Name,
		PodNamespace: x.VM.Pod.Namespace, PodName: x.VM.Pod.Name,
	}
	l.send(domain.Event{UUID: x.UUID, Kind: domain.EventDefined})
	return nil
}

// Undefine implements the driver's.
func (l *Libvirt) Undefine(ctx context.Context, uuid string) error {
	d, err := l.on(ctx, "Undefine", uuid)
	if errors.Is(err, domain.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.keep = false; d.state.Status == domain.StatusShutoff {
		delete(l.domains, uuid)
	}
	l.send(domain.Event{UUID: uuid, Kind: domain.EventUndefined})
	return nil
}
