package sandbox

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Reconcile compares the records with containerd's list at the start of the
// shim. It finds what an earlier shim had intended, and calls removeVMs for each
// sandbox that is gone before it forgets the sandbox. While the VMs of a sandbox can't
// be removed, or are kept, it tries again in the background: VMs can be removed only once libvirtd answers.
//
// A containerd that has lost all of its pods keeps its VMs: see [forgetful].
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
	g := &gone{Sandboxes: s, removeVMs: removeVMs, logged: map[string]string{}, before: s.table.Sandboxes()}
	if g.remove(ctx, all) {
		return nil
	}
	s.tasks.Retry(gonePause, nil, func(ctx context.Context) bool {
		all, err := s.list(ctx)
		if err != nil {
			s.log.Debug("asking containerd for its sandboxes failed, retrying", "error", err)
			return false
		}
		return g.remove(ctx, all)
	})
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
