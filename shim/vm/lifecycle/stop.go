package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

func (e *ends) stopByID(ctx context.Context, id string, timeout time.Duration) error {
	v, err := e.table.Find(id)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if v.Record().Unclean {
		awaitLibvirtd(ctx, e.libvirtd)
	}
	return e.stop(ctx, v, timeout)
}

func (e *ends) stop(ctx context.Context, v *table.VM, timeout time.Duration) error {
	e.pending.cancel(v)
	// This waits for a start that is under way.
	unlock, err := v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock()
	if err := e.endWaiting(ctx, v); err != nil {
		return err
	}
	r := v.Record()
	if r.State != record.Running {
		return nil
	}
	if timeout > 0 && !e.owned.lost(ctx, v) && e.shutDown(ctx, v, timeout) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stop VM container %q: %w", r.ID, err)
	}
	err = e.powerOff(ctx, r)
	if err == nil {
		err = e.disputes.endQEMU(ctx, r)
	}
	if err != nil {
		err = whyUnavailable(e.groups, r, err)
		return fmt.Errorf("stop VM container %q: %w%s", r.ID, err, stopRemedy(err))
	}
	return e.settle(ctx, v)
}

func (e *ends) powerOff(ctx context.Context, r record.Container) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	return e.domains.Destroy(ctx, r.Domain.UUID)
}

// whyUnavailable says that a VM's cgroup is frozen if that is why libvirtd gets no answer from
// its QEMU: libvirtd itself may be well.
func whyUnavailable(g Groups, r record.Container, err error) error {
	if !errors.Is(err, domain.ErrUnavailable) {
		return err
	}
	thaw, failed := g.Frozen(r)
	if failed != nil {
		return errors.Join(err, failed)
	}
	if thaw == "" {
		return err
	}
	return frozenError{err, thaw}
}

// frozenError is an error of a call to libvirtd about a VM whose cgroup is frozen.
type frozenError struct {
	err  error
	thaw string
}

func (f frozenError) Error() string {
	return fmt.Sprintf("the VM's cgroup is frozen, so that QEMU does not answer libvirtd; run: %s", f.thaw)
}

func (f frozenError) Unwrap() error { return f.err }

// stopRemedy is what to do about a VM that can't be ended.
func stopRemedy(err error) string {
	if _, frozen := errors.AsType[frozenError](err); frozen {
		return ""
	}
	if errors.Is(err, domain.ErrUnavailable) {
		return ": see whether libvirtd runs on this node; if it does not come back, " +
			"see \"A VM that can't be removed\" in nodevirt's docs/node.md"
	}
	return ""
}

// powerButtonPause is how long the shim waits before it repeats an ACPI shutdown
// request. A guest ignores the request while it boots, and one that shuts down
// ignores the next.
const powerButtonPause = 5 * time.Second

// shutDown asks the guest to power off, and reports whether it has within timeout.
func (e *ends) shutDown(ctx context.Context, v *table.VM, timeout time.Duration) bool {
	log := table.Logger(e.log, v.Record())
	if v.Record().Spec.NoACPI {
		e.tasks.Run(func(ctx context.Context) { e.askAgent(ctx, v) })
	} else if err := e.pressPower(ctx, v, patience); err != nil {
		if !errors.Is(err, domain.ErrNotRunning) && !errors.Is(err, domain.ErrNotFound) {
			log.Warn("requesting an ACPI shutdown failed", "error", err)
		}
		return false
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	again := time.NewTicker(powerButtonPause)
	defer again.Stop()
	for {
		select {
		case <-v.Exited():
			return true
		case <-again.C:
			if !v.Record().Spec.NoACPI {
				_ = e.pressPower(ctx, v, powerButtonPause) // its end, or that of the time, says enough
			}
		case <-limit.C:
			log.Info("the guest did not power off in time", "timeout", timeout)
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// askAgent asks the agent of a guest without a power button to power it off.
func (e *ends) askAgent(ctx context.Context, v *table.VM) {
	if err := e.agents.PowerOff(ctx, v); err != nil && ctx.Err() == nil {
		table.Logger(e.log, v.Record()).Warn("requesting a shutdown from the guest agent failed", "error", err)
	}
}

func (e *ends) pressPower(ctx context.Context, v *table.VM, limit time.Duration) error {
	ctx, cancel := background.AtMost(ctx, limit)
	defer cancel()
	return e.domains.Shutdown(ctx, v.Record().Domain.UUID)
}
