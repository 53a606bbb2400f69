package vmtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Connection is a fake of [domain.Connection].
type Connection struct{ libvirt *Libvirt }

// Connected implements domain's.
func (x *Connection) Connected(ctx context.Context) error {
	l := x.libvirt
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

// Subscribe implements domain's.
func (x *Connection) Subscribe() (<-chan domain.Event, func()) {
	l := x.libvirt
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

// Run implements domain's.
func (x *Connection) Run(ctx context.Context) error {
	l := x.libvirt
	if err := l.script.enter(ctx, "Libvirt.Run"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
