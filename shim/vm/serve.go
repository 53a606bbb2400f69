package vm

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
)

// serveAgain is how long a dnsmasq that doesn't stay is left alone.
const serveAgain = time.Second

// serveOn keeps a running machine's dnsmasq running. A guest that has its
// address doesn't need it until it reboots.
func (m *Manager) serveOn(c *machine) {
	if plan := c.record().Network; plan == nil || !plan.Served() {
		return
	}
	m.tasks.run(func(ctx context.Context) {
		for m.serveOnce(ctx, c) {
			select {
			case <-ctx.Done():
			case <-c.exited:
			case <-time.After(serveAgain):
			}
		}
	})
}

// serveOnce waits until dnsmasq has ended and starts it again, and tells
// whether to go on so.
func (m *Manager) serveOnce(ctx context.Context, c *machine) bool {
	r := c.record()
	if r.State != record.Running || r.Network == nil {
		return false // it ended meanwhile
	}
	if err := m.Network.Watch(ctx, *r.Network); ctx.Err() != nil {
		return false
	} else if err != nil {
		m.log(r).Error("watching dnsmasq failed", "error", err)
		return true
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	if c.record().State != record.Running {
		return false
	}
	if err := m.serve(ctx, r); err != nil {
		m.log(r).Error("starting dnsmasq again failed", "error", err)
		return ctx.Err() == nil
	}
	if !c.rebooted.Swap(false) {
		m.log(r).Warn("dnsmasq had ended and was started again")
	}
	return true
}

// forgetClient ends the dnsmasq of a machine that reboots, which may come back as another DHCP client;
// the one that serveOn starts in its place knows none.
func (m *Manager) forgetClient(ctx context.Context, c *machine) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	r := c.record()
	if r.State != record.Running || r.Network == nil {
		return
	}
	ended, err := m.Network.Forget(ctx, *r.Network)
	if err != nil {
		m.log(r).Error("having dnsmasq forget a guest that reboots failed", "error", err)
		return
	}
	if ended {
		c.rebooted.Store(true)
	}
}

func (m *Manager) serve(ctx context.Context, r record.Container) error {
	l := &launch{Manager: m, rec: r}
	group, err := l.openGroup()
	if err != nil {
		return err
	}
	pid, err := m.Network.Serve(ctx, *r.Network)
	if err != nil {
		return err
	}
	return group.Add(pid)
}
