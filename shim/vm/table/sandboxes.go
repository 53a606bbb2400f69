package table

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Sandbox returns the record of a VM's sandbox. The id is whole.
func (t *Table) Sandbox(id string) (record.Sandbox, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.sandboxes[id]
	return r, ok
}

// Sandboxes returns the ids of all sandboxes.
func (t *Table) Sandboxes() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.sandboxes))
}

// SandboxesWith returns the ids of the sandboxes that begin with prefix.
func (t *Table) SandboxesWith(prefix string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return hasPrefix(t.sandboxes, prefix)
}

// RecoverSandbox enters a sandbox whose record is on disk.
func (t *Table) RecoverSandbox(r record.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sandboxes[r.ID] = r
}

// AddSandbox records a sandbox, and enters it.
func (t *Table) AddSandbox(r record.Sandbox) error {
	if err := t.store.PutSandbox(r); err != nil {
		return err
	}
	t.RecoverSandbox(r)
	return nil
}

// RestoreSandbox enters a sandbox whose record is lost, also if writing the
// record again fails.
func (t *Table) RestoreSandbox(r record.Sandbox) error {
	t.RecoverSandbox(r)
	return t.store.PutSandbox(r)
}

// IfSandbox calls do if the sandbox is known. do must not call the table; the
// sandbox is not forgotten while it runs.
func (t *Table) IfSandbox(id string, do func()) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if _, known := t.sandboxes[id]; known {
		do()
	}
}

// ForgetSandbox removes the record of a sandbox, and the sandbox. It calls
// forgotten, which must not call the table, while the sandbox goes.
func (t *Table) ForgetSandbox(id string, forgotten func(record.Sandbox)) error {
	if err := t.Refusals.Of(id); err != nil {
		return err
	}
	if err := t.store.RemoveSandbox(id); err != nil {
		return fmt.Errorf("remove the record of sandbox %s: %w", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	forgotten(t.sandboxes[id])
	delete(t.sandboxes, id)
	return nil
}
