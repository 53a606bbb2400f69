package vmtest

import (
	"context"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// State implements the driver's.
func (l *Libvirt) State(ctx context.Context, uuid string) (domain.State, error) {
	d, err := l.on(ctx, "State", uuid)
	if err != nil {
		return domain.State{}, err
	}
	defer l.mu.Unlock()
	return d.state, nil
}

// Domains implements the driver's.
func (l *Libvirt) Domains(ctx context.Context) ([]domain.Info, error) {
	if err := l.enter(ctx, "Domains"); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	var all []domain.Info
	for _, d := range l.domains {
		all = append(all, d.info)
	}
	return all, nil
}

// SetMemory implements the driver's. A guest with a balloon follows at once.
func (l *Libvirt) SetMemory(ctx context.Context, uuid string, bytes int64) error {
	d, err := l.onRunning(ctx, "SetMemory", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.balloon {
		d.memory = min(bytes, d.ram)
	}
	return nil
}

// Memory implements the driver's.
func (l *Libvirt) Memory(ctx context.Context, uuid string) (int64, error) {
	d, err := l.onRunning(ctx, "Memory", uuid)
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	return d.memory, nil
}

// AgentConnected implements the driver's.
func (l *Libvirt) AgentConnected(ctx context.Context, uuid string) (bool, error) {
	d, err := l.on(ctx, "AgentConnected", uuid)
	if err != nil {
		return false, err
	}
	defer l.mu.Unlock()
	return d.agent, nil
}

// Subscribe implements the driver's.
func (l *Libvirt) Subscribe() (<-chan domain.Event, func()) {
	c := make(chan domain.Event, 256)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[c] = struct{}{}
	return c, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, c)
		close(c)
	})
}

// Run implements the driver's.
func (l *Libvirt) Run(ctx context.Context) error {
	if err := l.script.enter(ctx, "Libvirt.Run"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
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
