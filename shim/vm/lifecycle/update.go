package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// resizer changes the resources of containers.
type resizer struct {
	table    *table.Table
	groups   Groups
	memory   Memory
	sizes    Sizes
	libvirtd connector
	threads  pinner
	log      *slog.Logger
}

func (z *resizer) update(ctx context.Context, id string, change *runtimeapi.LinuxContainerResources) error {
	v, err := z.table.Find(id)
	if err != nil {
		return err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	if err := z.change(ctx, v, r, resources.Merge(resources.Of(r), change)); err != nil {
		return fmt.Errorf("update resources of VM container %q: %w", r.ID, err)
	}
	table.Logger(z.log, r).Info("VM's resources changed", "resources", resources.Of(v.Record()))
	return nil
}

func (z *resizer) change(ctx context.Context, v *table.VM, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	switch r.State {
	case record.Created:
		return z.changeCreated(v, r, wanted)
	case record.Running:
		return z.changeRunning(ctx, v, r, wanted)
	case record.Exited:
		r.Resources.Value = wanted
		return z.table.Put(v, r)
	}
	return fmt.Errorf("it is in %s state: %w", r.State, vmerrors.ErrState)
}

// changeCreated translates the request again, as if it had come with the new
// resources.
func (z *resizer) changeCreated(v *table.VM, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	config := proto.CloneOf(r.Config.Value)
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	config.Linux.Resources = wanted
	asked, err := vmspec.FromCRI(r.Sandbox.Value, config)
	if err != nil {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	r.Config.Value, r.Spec = config, asked.Resolve(r.Spec.Facts())
	return z.table.Put(v, r)
}

// changeRunning writes the new resources to disk before it applies them. If that
// fails, it writes and applies the old ones again.
func (z *resizer) changeRunning(ctx context.Context, v *table.VM, r record.Container, wanted *runtimeapi.LinuxContainerResources) error {
	old, had := resources.Of(r), r.Resources.Value
	if limit := wanted.GetMemoryLimitInBytes(); limit != old.GetMemoryLimitInBytes() {
		if err := resources.MemoryOf(r).Check(limit); err != nil {
			return err
		}
	}
	awaitLibvirtd(ctx, z.libvirtd)
	r.Resources.Value = wanted
	if err := z.table.Put(v, r); err != nil {
		return err
	}
	err := z.apply(ctx, v, r, appliedOf(r, old))
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	failed := r.Resources.Value
	r.Resources.Value = had
	return errors.Join(err, z.table.Put(v, r), z.apply(ctx, v, r, appliedOf(r, failed)))
}

// applied is what was applied to a running VM before.
type applied struct {
	memory int64 // the guest's
	cpuset string
}

func appliedOf(r record.Container, from *runtimeapi.LinuxContainerResources) applied {
	return applied{resources.MemoryOf(r).Guest(from.GetMemoryLimitInBytes()), from.GetCpusetCpus()}
}

// apply changes a running VM to the record's resources. The limit of its cgroup is
// never below what the guest has. For a guest that is still to come, only
// the cgroup changes: its threads are placed when it is here.
func (z *resizer) apply(ctx context.Context, v *table.VM, r record.Container, was applied) error {
	if r.Incoming != "" {
		return z.setLimits(r)
	}
	now := appliedOf(r, resources.Of(r))
	if now.memory < was.memory {
		if err := z.shrink(ctx, v, r, now.memory); err != nil {
			return err
		}
	}
	if err := z.setLimits(r); err != nil {
		return err
	}
	if now.cpuset != was.cpuset {
		if err := z.threads.pin(ctx, r); err != nil {
			return err
		}
	}
	if now.memory > was.memory {
		if err := z.grow(ctx, r, now.memory); err != nil {
			return err
		}
	}
	return z.addVCPUs(ctx, r)
}

// grow gives a guest memory: RAM that the domain does not have, and what the balloon has.
func (z *resizer) grow(ctx context.Context, r record.Container, bytes int64) error {
	if r.Spec.MaxMemory > 0 {
		size, err := z.sizes.Size(ctx, r.Domain.UUID)
		if err != nil {
			return err
		}
		if more := (bytes - size.RAM) / vmspec.MemoryStep * vmspec.MemoryStep; more > 0 {
			size.RAM += more
			if err := z.sizes.AddRAM(ctx, r.Domain.UUID, size.RAM); err != nil {
				return err
			}
		}
		bytes = min(bytes, size.RAM)
	}
	if !r.Spec.Balloon {
		return nil
	}
	return z.memory.SetMemory(ctx, r.Domain.UUID, bytes)
}

// addVCPUs comes last in a change: vCPUs are never taken away.
func (z *resizer) addVCPUs(ctx context.Context, r record.Container) error {
	count := resources.VCPUs(r)
	if count <= r.Spec.CPU.VCPUs() {
		return nil
	}
	return z.sizes.AddVCPUs(ctx, r.Domain.UUID, count)
}

func (z *resizer) setLimits(r record.Container) error {
	err := z.groups.Set(r)
	switch {
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ERANGE):
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("more is in use: %w: %w", vmerrors.ErrState, err)
	}
	return err
}

const (
	// shrinkTime is how long a guest may release no memory, and shrinkLimit how long it may take to release all
	// that it should. The kubelet waits for two minutes.
	shrinkTime  = 10 * time.Second
	shrinkLimit = 90 * time.Second
	shrinkPoll  = 50 * time.Millisecond
)

// shrink has the guest release memory, and waits until it did. It waits for long only while no other call waits
// for the VM's turn, which the caller has.
func (z *resizer) shrink(ctx context.Context, v *table.VM, r record.Container, bytes int64) error {
	if err := z.memory.SetMemory(ctx, r.Domain.UUID, bytes); err != nil {
		return err
	}
	begun, least := time.Now(), int64(math.MaxInt64)
	end, limit := time.NewTimer(shrinkTime), time.After(shrinkLimit)
	defer end.Stop()
	for {
		has, err := z.memory.Memory(ctx, r.Domain.UUID)
		if err != nil {
			return err
		}
		if has <= bytes {
			return nil
		}
		if has < least && !v.Awaited() {
			least = has
			end.Reset(shrinkTime)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest to release memory: %w", ctx.Err())
		case <-limit:
			return fmt.Errorf("the guest still has %s after %s: %w: try again when its node has less to do",
				resources.Text(has), shrinkLimit, vmerrors.ErrState)
		case <-end.C:
			return fmt.Errorf("the guest still has %s after %s and does not release more: %w: "+
				"it needs a virtio balloon driver, and has to have booted", resources.Text(has), time.Since(begun).Round(time.Second), vmerrors.ErrState)
		case <-time.After(shrinkPoll):
		}
	}
}

// applyAgain applies the resources of a running VM's record again: the shim may
// have ended while it changed them.
func (z *resizer) applyAgain(ctx context.Context, v *table.VM) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running || r.Resources.Value == nil {
		return
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	has, err := z.memory.Memory(ctx, r.Domain.UUID)
	if err == nil {
		err = z.apply(ctx, v, r, applied{memory: has})
	}
	if err != nil {
		table.Logger(z.log, r).Warn("applying a VM's changed resources again failed", "error", err)
	}
}
