package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

func (e *ends) removeByID(ctx context.Context, id string) error {
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
	return e.remove(ctx, v)
}

// remove does not wait for libvirtd: a shim that starts has no connection yet.
func (e *ends) remove(ctx context.Context, v *table.VM) error {
	if err := e.stop(ctx, v, 0); err != nil {
		return fmt.Errorf("failed to forcibly stop container %q: %w", v.Record().ID, err)
	}
	r, unlock, err := lockIfThere(ctx, v)
	if err != nil || unlock == nil { // nil: another call was faster
		return err
	}
	defer unlock()
	e.remember(r)
	if err := e.discard(ctx, v); err != nil {
		err = whyUnavailable(e.groups, r, err)
		return fmt.Errorf("remove VM container %q: %w%s", r.ID, err, stopRemedy(err))
	}
	table.Logger(e.log, r).Info("VM container removed")
	e.events.Publish(r, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// remember records how a guest has ended that may run elsewhere by now: its pod must not start again here, whatever an API
// server that went back in time says. A full disk must not keep a VM from being removed.
func (e *ends) remember(r record.Container) {
	pod, ok := replaceable(r)
	if !ok || r.State != record.Exited || r.StartedAt.IsZero() {
		return
	}
	if err := e.records.PutEnded(pod.UID, record.Ended{At: r.FinishedAt, Reason: r.Reason, Message: r.Message}); err != nil {
		table.Logger(e.log, r).Warn("recording the end of a pod's guest failed: the pod could start again", "error", err)
	}
}

// removeIn removes the VMs of a sandbox that is gone.
func (e *ends) removeIn(ctx context.Context, sandboxID string) error {
	var errs []error
	for _, v := range e.table.All(sandboxID) {
		errs = append(errs, e.remove(ctx, v))
	}
	return errors.Join(errs...)
}

// discard undoes all that a container which does not run is made of. The caller
// has the VM's turn.
func (e *ends) discard(ctx context.Context, v *table.VM) error {
	r := v.Record()
	if err := e.down.discarding().run(ctx, v, &r); err != nil {
		return err
	}
	// Also of a VM whose record says that it never ran: the record may be an old one.
	if err := e.witness.End(ctx, identityOf(r)); err != nil {
		return err
	}
	// Also of a VM that never started: the conversion of a disk makes the cgroup.
	if err := e.down.discarding().removeGroup(ctx, &r); err != nil {
		return err
	}
	if err := e.disks.Remove(ctx, r); err != nil {
		return err
	}
	if err := e.disks.Release(ctx, r.ID, r.Spec.Disks); err != nil {
		return err
	}
	// libvirt never removes a domain's log, and each container has its own domain.
	if err := layout.IgnoreAbsent(os.Remove(e.layout.DomainLog(r.Domain.Name))); err != nil {
		return fmt.Errorf("remove libvirt's log: %w", err)
	}
	return e.table.Remove(v)
}

// supersede removes containers that earlier attempts at the same container have
// made and that were not started. A kubelet goes on with the next attempt when
// its start was refused, when it did not learn of the container, or when it
// restarted in between; it removes the earlier attempt only with the pod. A pod
// holds one VM at a time.
func (e *ends) supersede(ctx context.Context, r record.Container) error {
	for _, v := range e.table.All(r.SandboxID) {
		if !supersedes(r, v.Record()) {
			continue
		}
		if err := e.removeUnstarted(ctx, v); err != nil {
			return fmt.Errorf("remove VM container %q, which an earlier attempt has made: %w", v.Record().ID, err)
		}
	}
	return nil
}

// supersedes reports whether a container is another attempt at an older one that
// has not started.
func supersedes(r, old record.Container) bool {
	mine, its := r.Config.Value.GetMetadata(), old.Config.Value.GetMetadata()
	return old.State == record.Created && old.SandboxID == r.SandboxID &&
		its.GetName() == mine.GetName() && its.GetAttempt() < mine.GetAttempt()
}

// removeUnstarted changes no container that was started meanwhile.
func (e *ends) removeUnstarted(ctx context.Context, v *table.VM) error {
	r, unlock, err := lockIfThere(ctx, v)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	if r.State != record.Created {
		return nil
	}
	if err := e.discard(ctx, v); err != nil {
		return err
	}
	table.Logger(e.log, r).Info("VM container removed: it was not started, and a new attempt replaces it")
	e.events.Publish(r, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// cleanPause is the time between two attempts to clean up.
var cleanPause = background.Pause{First: time.Second, Limit: time.Minute}

// cleanLater retries the clean-up that failed when a guest ended or failed to
// start. The pod's next VM may need the network or the disks.
func (e *ends) cleanLater(v *table.VM) {
	cleaning := &e.of.Of(v).cleaning
	if !cleaning.CompareAndSwap(false, true) {
		return // it is being retried
	}
	e.tasks.Retry(cleanPause, nil, func(ctx context.Context) bool {
		clean := e.clean(ctx, v)
		if clean {
			cleaning.Store(false)
		}
		return clean
	})
}

// clean undoes what is left of a VM whose record says that it ended, and reports
// whether nothing is left.
func (e *ends) clean(ctx context.Context, v *table.VM) (clean bool) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return errors.Is(err, vmerrors.ErrNotFound)
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Exited || !r.Unclean {
		return true
	}
	log := table.Logger(e.log, r)
	if err := e.down.run(ctx, v, &r); err != nil {
		log.Warn("cleaning up after a VM failed, retrying", "error", err)
		return false
	}
	if err := e.table.Put(v, r); err != nil {
		log.Warn("recording the clean-up of a VM failed, retrying", "error", err)
		return false
	}
	log.Info("what was left of a VM is removed")
	return true
}
