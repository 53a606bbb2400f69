package vmtest

import (
	"context"
	"fmt"
)

// Processes is a fake of [domain.Processes]. It works while libvirtd is away.
type Processes struct{ libvirt *Libvirt }

// AwaitProcess implements domain's.
func (p *Processes) AwaitProcess(ctx context.Context, name string) (int, error) {
	l := p.libvirt
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

// AwaitEnd implements domain's. It works while libvirtd is away.
func (p *Processes) AwaitEnd(ctx context.Context, name string, pid int) error {
	l := p.libvirt
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
