package vm

import (
	"context"
	"errors"
	"time"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/record"
)

// recover fills the tables from the records. It assumes that no other shim
// works on the same root, that containerd answers, and nothing of libvirtd.
//
// A broken record is set aside. A container found creating never was: it goes, if
// not at once then as soon as that can be. One found starting failed to
// start; what its phases made is taken back when libvirtd answers. One found
// running may have ended since, which Run finds out. Disks that are held for
// nobody are given back.
func (m *Manager) recover(ctx context.Context) error {
	if err := m.Unpacker.Sweep(); err != nil {
		return err
	}
	if err := m.Records.Sweep(); err != nil {
		return err
	}
	if err := m.setAside(); err != nil {
		return err
	}
	sandboxes, err := m.Records.Sandboxes()
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		m.sandboxes[s.ID] = s
	}
	containers, err := m.Records.Containers()
	if err != nil {
		return err
	}
	for _, r := range containers {
		if err := m.mendSandbox(r); err != nil {
			m.log(r).Error("recording the sandbox of a VM anew failed", "error", err)
		}
		c := newMachine(r)
		c.recovered = true
		m.mu.Lock() // for the tasks that those before have begun
		m.machines[r.ID] = c
		m.names[containerName(r)] = r.ID
		m.mu.Unlock()
		if err := m.Disks.Recover(r); err != nil {
			m.log(r).Error("finding the disks of a VM again failed", "error", err)
		}
		if err := m.recoverOne(ctx, c); err != nil {
			// One sick VM must not keep the node from its others.
			m.log(r).Error("finding a VM again failed", "error", err)
		}
	}
	for _, c := range m.all("") {
		m.tell(c) // of those that have ended; of the others libvirtd is asked first
	}
	if err := m.reconcileSandboxes(ctx); err != nil {
		return err
	}
	if err := m.sweepRun(ctx); err != nil {
		m.Logger.Error("removing what VMs that are gone had left failed", "error", err)
	}
	if err := m.releaseStrayDisks(ctx); err != nil {
		// Among other things it takes room on containerd's disk, and a full one must not keep the
		// shim from its running machines. The next start finds them.
		m.Logger.Error("giving back disks that are held for nobody failed", "error", err)
	}
	return nil
}

func (m *Manager) recoverOne(ctx context.Context, c *machine) error {
	r := c.record()
	switch r.State {
	case record.Creating:
		if err := m.discard(ctx, c); err != nil {
			m.discardLater(c)
			return err
		}
		return nil
	case record.Starting:
		// Its domain, if there is one, is paused or about to run. That and the
		// rest is taken back once libvirtd answers.
		return m.failStart(c, r, errors.New("the shim ended while the VM was being started"))
	case record.Running:
		m.serveOn(c)
		m.watchEnd(c)
		return m.Consoles.Follow(m.console(r.ID, r.LogPath))
	}
	return nil
}

// discardLater tries on to discard a container that never was, which else would
// keep its name and its user id: rarely, as nobody waits for it.
func (m *Manager) discardLater(c *machine) {
	m.tasks.run(func(ctx context.Context) {
		for pause := discardAgain; ; pause = min(2*pause, discardAtMost) {
			select {
			case <-ctx.Done():
				return // the next shim does it
			case <-time.After(pause):
			}
			gone, err := m.discardUnmade(ctx, c)
			if gone {
				return
			}
			m.log(c.record()).Warn("removing a container that was not made failed, trying on", "error", err)
		}
	})
}

// Pauses between the tries of discardLater.
const (
	discardAgain  = time.Second
	discardAtMost = time.Minute
)

func (m *Manager) discardUnmade(ctx context.Context, c *machine) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	unlock, err := c.lock(ctx)
	if errors.Is(err, ErrNotFound) {
		return true, nil // with its pod
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	r := c.record()
	if err := m.discard(ctx, c); err != nil {
		return false, err
	}
	m.log(r).Info("a container that was not made is removed")
	return true, nil
}

// releaseStrayDisks gives back the disks of containers that have no record.
func (m *Manager) releaseStrayDisks(ctx context.Context) error {
	owners, err := m.Unpacker.Owners(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, owner := range owners {
		id := disk.Container(owner)
		if m.Has(id) || m.aside[id] || disk.IsExport(id) {
			continue
		}
		m.Logger.Info("giving back a disk that is held for nobody", "container", id)
		errs = append(errs, m.Unpacker.Release(ctx, owner))
	}
	return errors.Join(errs...)
}

// tellStrayDomains names the domains of containers that have no record. A start
// writes its record before its domain, and a removal undefines before it removes
// the record: so these are another shim's, or the records are lost. They are
// guests at work, and not this shim's to end.
func (m *Manager) tellStrayDomains(ctx context.Context) {
	domains, err := m.Driver.Domains(ctx)
	if err != nil {
		m.Logger.Error("listing the domains failed", "error", err)
		return
	}
	for _, d := range domains {
		if !m.Has(d.ContainerID) {
			m.Logger.Warn("libvirt runs a domain of nodevirt's that no record here knows: "+
				"if it isn't another shim's, end it with virsh destroy and virsh undefine",
				"domain", d.Name, "container", d.ContainerID)
		}
	}
}

// cleanLater takes back, as soon as that can be, what could not be as a machine ended or failed to
// start: the next one of its pod may need the network that it has still, or its disks.
func (m *Manager) cleanLater(c *machine) {
	if !c.cleaning.CompareAndSwap(false, true) {
		return // it is being tried
	}
	m.tasks.run(func(ctx context.Context) {
		defer c.cleaning.Store(false)
		for pause := cleanAgain; ; pause = min(2*pause, cleanAtMost) {
			select {
			case <-ctx.Done():
				return // the next shim does it
			case <-time.After(pause):
			}
			if m.cleanExited(ctx, c) {
				return
			}
		}
	})
}

// Pauses between the tries of cleanLater.
const (
	cleanAgain  = time.Second
	cleanAtMost = time.Minute
)

// cleanExited takes back what stands of a machine whose record says that it ended, and tells whether
// nothing does any more.
func (m *Manager) cleanExited(ctx context.Context, c *machine) (clean bool) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return errors.Is(err, ErrNotFound)
	}
	defer unlock()
	r := c.record()
	if r.State != record.Exited || !r.Unclean || !m.Has(r.ID) {
		return true // or removed while this waited: its record must not come back
	}
	l := &launch{Manager: m, c: c, rec: r}
	if err := l.takeBack(ctx); err != nil {
		m.log(r).Warn("cleaning up after a VM failed, trying on", "error", err)
		return false
	}
	if err := m.put(c, l.rec); err != nil {
		m.log(r).Warn("recording the clean-up of a VM failed, trying on", "error", err)
		return false
	}
	m.log(r).Info("what was left of a VM is taken back")
	return true
}
