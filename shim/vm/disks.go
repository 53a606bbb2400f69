package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// acquireDisks acquires what the disks of a container are made of, and resolves the
// container's spec with that.
func (m *Manager) acquireDisks(ctx context.Context, n *creation) (err error) {
	namespace := n.rec.Sandbox.Value.GetMetadata().GetNamespace()
	n.rec.Disks, err = m.Disks.Acquire(ctx, n.rec.ID, namespace, n.asked.Disks(), n.own)
	if errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk) || errors.Is(err, disk.ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return err
	}
	n.rec.Spec = n.asked.Resolve(vmspec.Facts{Mode: m.DiskMode, Disks: disk.Facts(n.rec.Disks)})
	return nil
}

func (l *launch) attachDisks(ctx context.Context) (err error) {
	l.files, err = l.Disks.Attach(ctx, l.rec)
	return err
}

func (l *launch) detachDisks(ctx context.Context) error { return l.Disks.Detach(ctx, l.rec) }

// closeFiles closes the disks' files: QEMU has its own.
func (l *launch) closeFiles() {
	for _, group := range l.files {
		for _, f := range group {
			f.Close()
		}
	}
}

// watchDisks puts back what disks of running machines have with daemons that were
// restarted.
func (m *Manager) watchDisks(ctx context.Context) {
	m.Disks.Watch(ctx, func(ctx context.Context, id string) {
		if id == "" {
			m.sweepDisks(ctx)
		}
		for _, c := range m.all("") {
			if r := c.record(); r.State == record.Running && (id == "" || id == r.ID) {
				m.tasks.run(func(ctx context.Context) { m.restoreDisks(ctx, c) })
			}
		}
	})
}

// watchPortals has disks fail whose target does not answer.
func (m *Manager) watchPortals(ctx context.Context) {
	m.Disks.WatchPortals(ctx, func() []record.Container {
		var running []record.Container
		for _, c := range m.all("") {
			if r := c.record(); r.State == record.Starting || r.State == record.Running {
				running = append(running, r)
			}
		}
		return running
	})
}

// sweepDisks removes what a shim that was killed left of disks without a record.
func (m *Manager) sweepDisks(ctx context.Context) {
	if len(m.aside) > 0 {
		return // theirs are not known
	}
	records := func() (all []record.Container) {
		for _, c := range m.all("") {
			all = append(all, c.record())
		}
		return all
	}
	if err := m.Disks.Sweep(ctx, records); err != nil && ctx.Err() == nil {
		m.Logger.Error("removing what disks that are gone had left failed", "error", err)
	}
}

// restoreTime bounds one attempt to put a machine's disks back, restoreAgain is
// the pause before the next one.
const (
	restoreTime  = 30 * time.Second
	restoreAgain = time.Second
)

// restoreDisks puts a machine's disks back, and tries on while that fails: its
// guest waits for them. What libvirtd is missing it gets when it is back.
func (m *Manager) restoreDisks(ctx context.Context, c *machine) {
	for told := false; ; told = true {
		err := m.restoreOnce(ctx, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !told {
			m.log(c.record()).Error("putting back the disks of a VM failed", "error", err)
		}
		if errors.Is(err, domain.ErrUnavailable) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.exited:
			return
		case <-time.After(restoreAgain):
		}
	}
}

func (m *Manager) restoreOnce(ctx context.Context, c *machine) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := c.record()
	if r.State != record.Running {
		return nil
	}
	return m.Disks.Restore(ctx, r)
}
