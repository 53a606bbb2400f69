package table

import (
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Find returns the VM with an id, or the only one whose id begins with it.
func (t *Table) Find(id string) (*VM, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if v, ok := t.vms[id]; ok {
		return v, nil
	}
	var found []string
	if id != "" {
		found = hasPrefix(t.vms, id)
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("container %q: %w", id, vmerrors.ErrNotFound)
	case 1:
		return t.vms[found[0]], nil
	}
	return nil, fmt.Errorf("ambiguous container ID prefix %q: %w: it matches %d containers", id, vmerrors.ErrNotFound, len(found))
}

// Has reports whether id, which may be shortened, is a VM container's.
func (t *Table) Has(id string) bool {
	_, err := t.Find(id)
	return err == nil
}

// All returns the VMs, or with a sandbox's id only those of that sandbox.
func (t *Table) All(sandboxID string) []*VM {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []*VM
	for _, v := range t.vms {
		if sandboxID == "" || v.Record().SandboxID == sandboxID {
			all = append(all, v)
		}
	}
	return all
}

// Records returns the records of the VMs in any of the states; with no state, of all.
func (t *Table) Records(states ...record.State) []record.Container {
	var all []record.Container
	for _, v := range t.All("") {
		r := v.Record()
		if len(states) == 0 || slices.Contains(states, r.State) {
			all = append(all, r)
		}
	}
	return all
}

// RunningIn returns the VM that runs in a sandbox, whose id is whole.
func (t *Table) RunningIn(sandboxID string) (*VM, bool) {
	for _, v := range t.All(sandboxID) {
		if v.Record().State == record.Running {
			return v, true
		}
	}
	return nil, false
}

// IfLatest calls do if the VM's sandbox is known and has no newer VM. do must
// not call the table; no sandbox is forgotten while it runs.
func (t *Table) IfLatest(r record.Container, do func()) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if _, known := t.sandboxes[r.SandboxID]; !known {
		return
	}
	for _, v := range t.vms {
		if o := v.Record(); o.SandboxID == r.SandboxID && o.CreatedAt.After(r.CreatedAt) {
			return
		}
	}
	do()
}
