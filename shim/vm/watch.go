package vm

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// watch settles machines as libvirtd tells of their ends, and all of them
// after each new connection to it.
func (m *Manager) watch(ctx context.Context, events <-chan domain.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			m.heed(e)
		}
	}
}

// heed leaves the work to tasks: the events go on.
func (m *Manager) heed(e domain.Event) {
	if e.Kind == domain.EventResync {
		m.tasks.run(m.tellStrayDomains)
	}
	for _, uuid := range m.late.of(e) {
		m.tasks.run(func(ctx context.Context) { m.removeLate(ctx, uuid) })
	}
	for _, c := range m.all("") {
		r := c.record()
		m.heedAgent(c, e)
		switch {
		case e.Kind == domain.EventResync && r.State == record.Running:
			m.tasks.run(func(ctx context.Context) {
				m.settleLogged(ctx, c)
				m.applyAgain(ctx, c)
				m.restoreDisks(ctx, c)
			})
		case e.Kind == domain.EventResync && r.State == record.Exited && r.Unclean:
			m.tasks.run(func(ctx context.Context) {
				if !m.cleanExited(ctx, c) {
					m.cleanLater(c)
				}
			})
		case e.UUID != r.Domain.UUID:
		case e.Kind == domain.EventRebooted:
			m.tasks.run(func(ctx context.Context) { m.forgetClient(ctx, c) })
		case e.Kind == domain.EventCrashed:
			c.panicked.Store(true)
		case e.Kind == domain.EventStopped, e.Kind == domain.EventSuspended, e.Kind == domain.EventResumed && c.isPaused():
			m.tasks.run(func(ctx context.Context) { m.settleLogged(ctx, c) })
		}
	}
}

func (m *Manager) settleLogged(ctx context.Context, c *machine) {
	if err := m.settle(ctx, c); err != nil && ctx.Err() == nil {
		m.log(c.record()).Error("finding out about a VM failed", "error", err)
	}
}

// Pauses of watchEnd. libvirtd mostly tells of an end within milliseconds.
const (
	settleAgain  = time.Second
	settleAtMost = 30 * time.Second
)

// watchEnd settles a running machine once its QEMU has ended, until libvirtd
// knows of it too. There is no event where it ended before a libvirtd that was
// started anew had found it again, and was told to run until then.
func (m *Manager) watchEnd(c *machine) {
	r := c.record()
	m.tasks.run(func(ctx context.Context) {
		if err := m.Driver.AwaitEnd(ctx, r.Domain.Name, r.Domain.PID); err != nil {
			if ctx.Err() == nil {
				m.log(r).Error("watching a VM's process failed", "error", err)
			}
			return
		}
		for pause := settleAgain; ; pause = min(2*pause, settleAtMost) {
			select {
			case <-ctx.Done():
				return
			case <-c.exited:
				return
			case <-time.After(pause):
			}
			if err := m.settle(ctx, c); err != nil {
				m.log(r).Debug("finding out about a VM whose process has ended failed, trying on", "error", err)
			}
		}
	})
}
