package vm

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// supersede removes what earlier attempts at a container have made and nobody started. A kubelet
// whose start was refused, which did not hear that there is a container, or which was itself started
// anew in between, goes on with the next attempt, and removes the one before only with the pod; and a
// pod holds one VM at a time.
func (m *Manager) supersede(ctx context.Context, r record.Container) error {
	for _, c := range m.all(r.SandboxID) {
		if !supersedes(r, c.record()) {
			continue
		}
		if err := m.removeUnstarted(ctx, c); err != nil {
			return fmt.Errorf("remove VM container %q, which an earlier attempt has made: %w", c.record().ID, err)
		}
	}
	return nil
}

// supersedes tells whether a container is another attempt at an older one that was not started.
func supersedes(r, old record.Container) bool {
	mine, its := r.Config.Value.GetMetadata(), old.Config.Value.GetMetadata()
	return old.State == record.Created && old.SandboxID == r.SandboxID &&
		its.GetName() == mine.GetName() && its.GetAttempt() < mine.GetAttempt()
}

// removeUnstarted leaves a container alone that was started meanwhile.
func (m *Manager) removeUnstarted(ctx context.Context, c *machine) error {
	unlock, err := c.lock(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := c.record()
	if r.State != record.Created {
		return nil
	}
	if err := m.discard(ctx, c); err != nil {
		return err
	}
	m.log(r).Info("VM container removed: it was not started, and there is a new attempt at it")
	m.publish(r, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}
