package vmtest

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Sandboxes is a fake of package sandbox's Sandboxes, on a table of its caller's.
type Sandboxes struct {
	script *Script
	table  *table.Table
	// Gone are the ids of the sandboxes that containerd does not have any more.
	Gone []string
	// There are those that Find finds, by the names of VMs' domains.
	There map[string]record.Sandbox
}

// NewSandboxes returns Sandboxes.
func NewSandboxes(s *Script, t *table.Table) *Sandboxes { return &Sandboxes{script: s, table: t} }

// NetworkNamespace implements sandbox's.
func (s *Sandboxes) NetworkNamespace(ctx context.Context, id string) (string, error) {
	if err := s.script.enter(ctx, "Sandboxes.NetworkNamespace"); err != nil {
		return "", err
	}
	return "/run/netns/" + id, nil
}

// Reconcile implements sandbox's.
func (s *Sandboxes) Reconcile(ctx context.Context, removeVMs func(ctx context.Context, sandboxID string) error) error {
	errs := []error{s.script.enter(ctx, "Sandboxes.Reconcile")}
	for _, id := range s.Gone {
		errs = append(errs, removeVMs(ctx, id))
	}
	return errors.Join(errs...)
}

// Find implements sandbox's.
func (s *Sandboxes) Find(ctx context.Context, _, domain string) (record.Sandbox, bool, error) {
	if err := s.script.enter(ctx, "Sandboxes.Find"); err != nil {
		return record.Sandbox{}, false, err
	}
	r, found := s.There[domain]
	return r, found, nil
}

// Restore implements sandbox's.
func (s *Sandboxes) Restore(handler string, r record.Container) error {
	if _, known := s.table.Sandbox(r.SandboxID); known {
		return nil
	}
	return s.table.RestoreSandbox(record.Sandbox{ID: r.SandboxID, Handler: handler, Config: r.Sandbox})
}
