package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// settle records the end of a machine that has ended, and takes back what was
// made for it. A machine that runs stays as it is.
func (m *Manager) settle(ctx context.Context, c *machine) error {
	unlock, err := c.lock(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := c.record()
	if r.State != record.Running {
		return nil
	}
	state, err := m.stateOf(ctx, r)
	switch {
	case errors.Is(err, domain.ErrNotFound):
		state = domain.State{Status: domain.StatusShutoff, Reason: domain.ReasonFailed}
	case err != nil:
		return fmt.Errorf("ask for the state of VM container %q: %w", r.ID, err)
	}
	if starved(state) {
		m.starve(c)
	}
	if state.Status != domain.StatusShutoff {
		m.notePaused(c, state)
		return nil
	}
	l := &launch{Manager: m, c: c, rec: r}
	l.rec.State, l.rec.FinishedAt, l.rec.Domain.PID = record.Exited, time.Now(), 0
	end := l.end(state.Reason)
	l.rec.ExitCode, l.rec.Reason, l.rec.Message = end.code, end.reason, end.message
	// On disk at once, since libvirt forgets how it ended with the domain. It is
	// told when all is taken back, so that a new container finds the pod free.
	// The kubelet has to learn of it even if the disk is full: then a shim that
	// starts anew finds it out again.
	err = m.Records.PutContainer(l.rec)
	if err := l.takeBack(ctx); err != nil {
		// It is also tried again with libvirtd's next connection, and when the container is removed.
		m.log(r).Error("cleaning up after a VM failed, trying on", "error", err)
		defer m.cleanLater(c)
	}
	if err = errors.Join(err, m.Records.PutContainer(l.rec)); err != nil {
		err = fmt.Errorf("record the end of VM container %q: %w", r.ID, err)
	}
	c.publish(l.rec)
	m.tell(c)
	m.log(l.rec).Info("VM ended", "code", end.code, "reason", end.reason, "message", end.message)
	m.Metrics.Ended(end.reason)
	m.publish(l.rec, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return err
}

// patience is how long libvirtd may take for a call on a running domain, also of
// a caller without a deadline. A state that was not told is asked for again with
// libvirtd's next connection.
const patience = 30 * time.Second

func (m *Manager) stateOf(ctx context.Context, r record.Container) (domain.State, error) {
	ctx, cancel := atMost(ctx, patience)
	defer cancel()
	return m.Driver.State(ctx, r.Domain.UUID)
}

// ending is an end in CRI's words: those that containerd has for a process.
type ending struct {
	code            int32
	reason, message string
}

// What the ends of machines are called.
const (
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonOOMKilled = "OOMKilled"
	// reasonStartError is containerd's word for a start that failed.
	reasonStartError = "StartError"

	codeKilled  = 128 + 9 // as of a process that SIGKILL ended
	codeAborted = 128 + 6 // as of one that gave up by itself
)

// end says what libvirt's reason for a machine's end means for its container.
func (l *launch) end(reason domain.Reason) ending {
	switch reason {
	case domain.ReasonShutdown:
		return ending{0, reasonCompleted, ""}
	case domain.ReasonDestroyed:
		return ending{codeKilled, reasonError, "the machine was powered off"}
	}
	if l.oomKills() > 0 {
		return ending{codeKilled, reasonOOMKilled,
			"QEMU needed more memory than the container's limit and the pod's overhead allow"}
	}
	if l.c.panicked.Load() {
		return ending{codeAborted, reasonError, "the guest's kernel panicked"}
	}
	return ending{codeKilled, reasonError, "QEMU ended unexpectedly: see libvirt's log of domain " + l.rec.Domain.Name}
}

// oomKills counts the processes of this machine that the OOM killer ended. A
// group that is gone tells nothing.
func (l *launch) oomKills() uint64 {
	n, err := l.countOOMKills()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log(l.rec).Warn("reading the OOM killer's count failed", "error", err)
	}
	return n
}

func (l *launch) countOOMKills() (uint64, error) {
	g, err := l.openGroup()
	if err != nil {
		return 0, err
	}
	return g.OOMKills()
}

// Stop ends a machine: the ACPI power button, and after timeout, or if that is
// 0, the power off. One that does not run is no error.
func (m *Manager) Stop(ctx context.Context, id string, timeout time.Duration) error {
	c, err := m.find(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.record().Unclean {
		m.awaitLibvirtd(ctx)
	}
	return m.stop(ctx, c, timeout)
}

func (m *Manager) stop(ctx context.Context, c *machine, timeout time.Duration) error {
	m.giveUpMaking(c)
	// A start that is under way is waited for.
	unlock, err := c.lock(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r := c.record()
	unlock()
	if r.State != record.Running {
		return nil
	}
	if timeout > 0 && m.shutDown(ctx, c, r, timeout) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stop VM container %q: %w", r.ID, err)
	}
	if err := m.powerOff(ctx, r); err != nil {
		return fmt.Errorf("stop VM container %q: %w%s", r.ID, err, stopWayOut(err))
	}
	return m.settle(ctx, c)
}

func (m *Manager) powerOff(ctx context.Context, r record.Container) error {
	ctx, cancel := atMost(ctx, patience)
	defer cancel()
	return m.Driver.Destroy(ctx, r.Domain.UUID)
}

// stopWayOut is what can be done about a machine that can't be ended.
func stopWayOut(err error) string {
	if errors.Is(err, domain.ErrUnavailable) {
		return ": see whether libvirtd runs on this node; if it does not come back, " +
			"see \"A VM that can't be removed\" in nodevirt's docs/node.md"
	}
	return ""
}

// pressAgain is how long a guest has for its answer to the power button before that is pressed once
// more: one that boots hears nothing of it, and one that shuts down does so anyway.
const pressAgain = 5 * time.Second

// shutDown asks the guest to power off and tells whether it has within timeout.
func (m *Manager) shutDown(ctx context.Context, c *machine, r record.Container, timeout time.Duration) bool {
	if err := m.pressPower(ctx, r, patience); err != nil {
		if !errors.Is(err, domain.ErrNotRunning) && !errors.Is(err, domain.ErrNotFound) {
			m.log(r).Warn("pressing the power button failed", "error", err)
		}
		return false
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	again := time.NewTicker(pressAgain)
	defer again.Stop()
	for {
		select {
		case <-c.exited:
			return true
		case <-again.C:
			_ = m.pressPower(ctx, r, pressAgain) // its end, or that of the time, tells what there is to tell
		case <-t.C:
			m.log(r).Info("the guest did not power off in time", "timeout", timeout)
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (m *Manager) pressPower(ctx context.Context, r record.Container, limit time.Duration) error {
	ctx, cancel := atMost(ctx, limit)
	defer cancel()
	return m.Driver.Shutdown(ctx, r.Domain.UUID)
}

// Remove removes a container with all that is its own; one that runs is powered
// off first. None is no error.
func (m *Manager) Remove(ctx context.Context, id string) error {
	c, err := m.find(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.record().Unclean {
		m.awaitLibvirtd(ctx)
	}
	return m.remove(ctx, c)
}

// remove is Remove without waiting for libvirtd: a shim that starts has no
// connection to it yet.
func (m *Manager) remove(ctx context.Context, c *machine) error {
	if err := m.stop(ctx, c, 0); err != nil {
		return fmt.Errorf("failed to forcibly stop container %q: %w", c.record().ID, err)
	}
	unlock, err := c.lock(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil // another call was faster
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := c.record()
	if err := m.discard(ctx, c); err != nil {
		return fmt.Errorf("remove VM container %q: %w%s", r.ID, err, stopWayOut(err))
	}
	m.log(r).Info("VM container removed")
	m.publish(r, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// discard takes back all that a container that doesn't run is made of. The
// caller has the machine's turn.
func (m *Manager) discard(ctx context.Context, c *machine) error {
	r := c.record()
	if err := (&launch{Manager: m, c: c, rec: r}).takeBack(ctx); err != nil {
		return err
	}
	if err := m.Disks.Remove(ctx, r); err != nil {
		return err
	}
	if err := m.Disks.Release(ctx, r.ID, r.Spec.Disks); err != nil {
		return err
	}
	// libvirt never removes a domain's log, and each container has its own domain.
	if err := ignoreAbsent(os.Remove(filepath.Join(m.DomainLogs, r.Domain.Name+".log"))); err != nil {
		return fmt.Errorf("remove libvirt's log: %w", err)
	}
	if err := m.Records.RemoveContainer(r.ID); err != nil {
		return err
	}
	m.forget(c)
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
