package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// CheckSandbox refuses a pod that can't hold a VM.
func (m *Manager) CheckSandbox(config *runtimeapi.PodSandboxConfig) error {
	if err := vmspec.ValidateSandbox(config); err != nil {
		if pod, ok := statusOf(config); ok {
			m.PodStatus.TellRefused(pod, podstatus.Facts{Reason: condition.ReasonCreateFailed, Message: err.Error()})
		}
		return fmt.Errorf("pod %s/%s: %w: %w",
			config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), ErrInvalid, err)
	}
	return nil
}

// AddSandbox records that a sandbox, which containerd made as it was intended,
// is a VM's.
func (m *Manager) AddSandbox(key, id, handler string, config *runtimeapi.PodSandboxConfig) error {
	r := record.Sandbox{ID: id, Handler: handler, CreatedAt: time.Now()}
	r.Config.Value = config
	if err := m.Records.PutSandbox(r); err != nil {
		return err
	}
	m.mu.Lock()
	m.sandboxes[id] = r
	m.mu.Unlock()
	return m.Records.RemoveIntent(key)
}

// reconcileSandboxes compares the records of sandboxes with containerd's list:
// what a shim that ended in the middle of a call had intended, or not forgotten yet.
func (m *Manager) reconcileSandboxes(ctx context.Context) error {
	all, err := m.listSandboxes(ctx)
	if err != nil {
		return err
	}
	if err := m.adopt(all); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, s := range all {
		there[s.GetId()] = true
	}
	m.mu.RLock()
	known := slices.Collect(maps.Keys(m.sandboxes)) // a task may find one that was intended meanwhile
	m.mu.RUnlock()
	for _, id := range known {
		if there[id] {
			continue
		}
		m.Logger.Info("a sandbox is gone", "sandbox", id)
		var errs []error
		for _, c := range m.all(id) {
			errs = append(errs, m.remove(ctx, c))
		}
		if err := errors.Join(errs...); err != nil {
			m.Logger.Error("removing the VMs of a sandbox that is gone failed", "sandbox", id, "error", err)
			continue
		}
		if err := m.ForgetSandbox(id); err != nil {
			m.Logger.Error("forgetting a sandbox that is gone failed", "sandbox", id, "error", err)
		}
	}
	return nil
}

// listSandboxes are all that containerd has.
func (m *Manager) listSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	reply, err := m.Pods.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containerd's sandboxes: %w", err)
	}
	return reply.GetItems(), nil
}

// Handler returns the runtime handler that a sandbox was asked for with, if it
// is a VM's. The id is whole.
func (m *Manager) Handler(id string) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.sandboxes[id]
	return r.Handler, ok
}

// HasSandboxes tells whether any sandbox is a VM's; with an id, which may be
// shortened, whether one that begins so is.
func (m *Manager) HasSandboxes(id string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for full := range m.sandboxes {
		if strings.HasPrefix(full, id) {
			return true
		}
	}
	return false
}

// StopSandbox powers off the machines of a sandbox, before containerd stops the rest.
func (m *Manager) StopSandbox(ctx context.Context, id string) error {
	var errs []error
	for _, c := range m.all(id) {
		errs = append(errs, m.Stop(ctx, c.record().ID, 0))
	}
	return errors.Join(errs...)
}

// RemoveMachines removes the machines of a sandbox, before containerd removes it.
func (m *Manager) RemoveMachines(ctx context.Context, id string) error {
	var errs []error
	for _, c := range m.all(id) {
		errs = append(errs, m.Remove(ctx, c.record().ID))
	}
	return errors.Join(errs...)
}

// ForgetSandbox removes the record of a sandbox that containerd has removed.
func (m *Manager) ForgetSandbox(id string) error {
	if err := m.Records.RemoveSandbox(id); err != nil {
		return fmt.Errorf("remove the record of sandbox %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if pod, ok := statusOf(m.sandboxes[id].Config.Value); ok {
		m.PodStatus.Forget(pod)
	}
	delete(m.sandboxes, id)
	return nil
}

// pod is what a start needs to know about a sandbox as containerd made it.
type pod struct {
	netns string
}

// pod asks containerd for a sandbox that is ready.
func (m *Manager) pod(ctx context.Context, id string) (pod, error) {
	reply, err := m.Pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return pod{}, fmt.Errorf("ask containerd for sandbox %s: %w", id, err)
	}
	if reply.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return pod{}, fmt.Errorf("sandbox container %q is not running: a VM needs its pod's network", id)
	}
	netns, err := networkNamespace(reply.GetInfo()["info"])
	if err != nil {
		return pod{}, fmt.Errorf("sandbox %s: %w", id, err)
	}
	return pod{netns: netns}, nil
}
