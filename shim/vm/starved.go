package vm

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// feedAgain is how long a guest whose disk failed waits for the next try. QEMU has kept the request, and stops again if it fails again.
const feedAgain = 2 * time.Second

// starve has a guest go on that QEMU stopped at a disk error, mostly since the
// node's disk is full, when there is room again. The caller has the machine's turn.
func (m *Manager) starve(c *machine) {
	if !c.starved.CompareAndSwap(false, true) {
		return // it is being tried
	}
	m.log(c.record()).Error("the guest is stopped, since its disk fails: is the node's disk full, or a target of " +
		"iSCSI away? It goes on as soon as that succeeds")
	m.tasks.run(func(ctx context.Context) {
		for !m.feed(ctx, c) {
			select {
			case <-ctx.Done():
				return // the next shim finds it
			case <-c.exited:
				return
			case <-time.After(feedAgain):
			}
		}
	})
}

// feed lets a stopped guest run, and tells whether that was not needed any more.
func (m *Manager) feed(ctx context.Context, c *machine) (runs bool) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	r := c.record()
	if r.State != record.Running {
		return true
	}
	state, err := m.stateOf(ctx, r)
	switch {
	case err != nil:
		return false // libvirtd is away
	case !starved(state):
		// Within the turn: who sees it stopped again comes after.
		c.starved.Store(false)
		m.log(r).Info("the guest that was stopped at a disk error goes on")
		return true
	}
	ctx, cancel := atMost(ctx, patience)
	defer cancel()
	if err := m.Driver.Resume(ctx, r.Domain.UUID); err != nil {
		m.log(r).Debug("letting a guest go on failed", "error", err)
	}
	return false
}

func starved(s domain.State) bool {
	return s.Status == domain.StatusPaused && s.Reason == domain.ReasonIOError
}
