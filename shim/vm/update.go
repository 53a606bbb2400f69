package vm

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Update changes a container's resources. Of a machine that runs these are the
// limits of its group and, through the balloon, what the guest has of its RAM;
// its vCPUs stay. One that was not started yet is made anew from them; of one
// that ended they are only noted.
func (m *Manager) Update(ctx context.Context, id string, change *runtimeapi.LinuxContainerResources) error {
	c, err := m.find(id)
	if err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := c.record()
	if err := m.update(ctx, c, r, merged(resources(r), change)); err != nil {
		return fmt.Errorf("update resources of VM container %q: %w", r.ID, err)
	}
	m.log(r).Info("VM's resources changed", "resources", resources(c.record()))
	return nil
}

func (m *Manager) update(ctx context.Context, c *machine, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	switch r.State {
	case record.Created:
		return m.updateCreated(c, r, wanted)
	case record.Running:
		return m.updateRunning(ctx, c, r, wanted)
	case record.Exited:
		r.Resources.Value = wanted
		return m.put(c, r)
	}
	return fmt.Errorf("it is in %s state: %w", r.State, ErrState)
}

// updateCreated translates the request once more, as if it had come so.
func (m *Manager) updateCreated(c *machine, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	config := proto.CloneOf(r.Config.Value)
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	config.Linux.Resources = wanted
	asked, err := vmspec.FromCRI(r.Sandbox.Value, config)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	r.Config.Value, r.Spec = config, asked.Resolve(r.Spec.Facts())
	return m.put(c, r)
}

// updateRunning has the new resources on disk before they are acted on, and the
// old ones again where that fails.
func (m *Manager) updateRunning(ctx context.Context, c *machine, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	old, had := resources(r), r.Resources.Value
	if limit := wanted.GetMemoryLimitInBytes(); limit != old.GetMemoryLimitInBytes() {
		if err := boundsOf(r).check(limit); err != nil {
			return err
		}
	}
	m.awaitLibvirtd(ctx)
	r.Resources.Value = wanted
	if err := m.put(c, r); err != nil {
		return err
	}
	err := m.apply(ctx, r, old)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	failed := r.Resources.Value
	r.Resources.Value = had
	return errors.Join(err, m.put(c, r), m.apply(ctx, r, failed))
}

// apply brings a running machine from one set of resources to the record's. The
// group is never narrower than what the guest has.
func (m *Manager) apply(ctx context.Context, r record.Container, from *runtimeapi.LinuxContainerResources) error {
	b := boundsOf(r)
	had, has := b.guestMemory(from.GetMemoryLimitInBytes()), b.guestMemory(resources(r).GetMemoryLimitInBytes())
	if has < had {
		if err := m.shrink(ctx, r, has); err != nil {
			return err
		}
	}
	if err := m.setLimits(r); err != nil {
		return err
	}
	if has > had {
		return m.Driver.SetMemory(ctx, r.Domain.UUID, has)
	}
	return nil
}

func (m *Manager) setLimits(r record.Container) error {
	g, err := (&launch{Manager: m, rec: r}).openGroup()
	if err != nil {
		return err
	}
	err = g.Set(m.limits(resources(r), r.Sandbox.Value))
	switch {
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ERANGE):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("more is in use: %w: %w", ErrState, err)
	}
	return err
}

const (
	// shrinkTime is how long a guest may take to give memory back.
	shrinkTime = 10 * time.Second
	shrinkPoll = 50 * time.Millisecond
)

// shrink has the guest give back memory, and waits until it did.
func (m *Manager) shrink(ctx context.Context, r record.Container, bytes int64) error {
	if err := m.Driver.SetMemory(ctx, r.Domain.UUID, bytes); err != nil {
		return err
	}
	end := time.After(shrinkTime)
	for {
		has, err := m.Driver.Memory(ctx, r.Domain.UUID)
		if err != nil {
			return err
		}
		if has <= bytes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest to give memory back: %w", ctx.Err())
		case <-end:
			return fmt.Errorf("the guest still has %s after %s and does not give back more than that: %w: "+
				"it needs a virtio balloon driver, and has to have booted", bytesText(has), shrinkTime, ErrState)
		case <-time.After(shrinkPoll):
		}
	}
}

// applyAgain sets what a record says of a running machine's resources, should
// the shim have ended while it changed them.
func (m *Manager) applyAgain(ctx context.Context, c *machine) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	r := c.record()
	if r.State != record.Running || r.Resources.Value == nil {
		return
	}
	ctx, cancel := atMost(ctx, patience)
	defer cancel()
	has, err := m.Driver.Memory(ctx, r.Domain.UUID)
	if err == nil {
		err = m.apply(ctx, r, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: has})
	}
	if err != nil {
		m.log(r).Warn("setting a VM's changed resources again failed", "error", err)
	}
}
