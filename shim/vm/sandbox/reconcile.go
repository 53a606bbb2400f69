package sandbox

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Reconcile compares the records with containerd's list at the start of the
// shim. It finds what an earlier shim had intended, and calls removeVMs for each
// sandbox that is gone before it forgets the sandbox. A sandbox whose VMs can't
// be removed stays for the next start.
func (s *Sandboxes) Reconcile(ctx context.Context, removeVMs func(ctx context.Context, sandboxID string) error) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	intents, err := s.intents.Intents()
	if err != nil {
		return err
	}
	for key, r := range intents {
		if err := s.fulfil(key, r, all); err != nil {
			// A full disk must not keep the shim from its running VMs.
			s.log.Error("recording a sandbox whose creation was cut off failed, retrying", "error", err)
			s.Resolve(key)
		}
	}
	there := map[string]bool{}
	for _, one := range all {
		there[one.GetId()] = true
	}
	for _, id := range s.table.Sandboxes() {
		if there[id] {
			continue
		}
		s.log.Info("a sandbox is gone", "sandbox", id)
		if err := removeVMs(ctx, id); err != nil {
			s.log.Error("removing the VMs of a sandbox that is gone failed", "sandbox", id, "error", err)
			continue
		}
		if err := s.Forget(id); err != nil {
			s.log.Error("forgetting a sandbox that is gone failed", "sandbox", id, "error", err)
		}
	}
	return nil
}

// Restore enters the sandbox of a VM whose sandbox record is lost. Without it,
// the removal of the pod would leave the VM behind.
func (s *Sandboxes) Restore(handler string, r record.Container) error {
	if _, known := s.table.Sandbox(r.SandboxID); known {
		return nil
	}
	return s.table.RestoreSandbox(record.Sandbox{
		ID: r.SandboxID, Handler: handler, CreatedAt: r.CreatedAt, Config: r.Sandbox,
	})
}
