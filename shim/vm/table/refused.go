package table

import (
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// remedy is appended to the reason why a record cannot be used.
const remedy = `see "Records that cannot be used" in nodevirt's docs/node.md`

// Refusals are the reasons why records of containers and sandboxes cannot be used, by
// their whole IDs.
type Refusals struct {
	mu      sync.RWMutex
	reasons map[string]error
}

// Of returns why the record of a container or a sandbox cannot be used; nil if it can.
func (r *Refusals) Of(id string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.reasons[id]
}

// Any reports whether any record cannot be used.
func (r *Refusals) Any() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.reasons) > 0
}

// add records the reason for a container or a sandbox, and returns it as calls return it.
func (r *Refusals) add(kind, id string, reason error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons == nil {
		r.reasons = map[string]error{}
	}
	r.reasons[id] = fmt.Errorf("%s %q: %w: %w; %s", kind, id, vmerrors.ErrRecord, reason, remedy)
	return r.reasons[id]
}

func (r *Refusals) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reasons, id)
}

// RefuseContainer enters a container whose record cannot be used. r has what is known
// of it: the container keeps its name, its user ID and its place in its pod. No call
// can change it, since nothing gets its turn. Call it before [Table.Recover].
func (t *Table) RefuseContainer(r record.Container, reason error) *VM {
	v := NewVM(r)
	v.recovered = true
	v.refused = t.Refusals.add("VM container", r.ID, reason)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vms[r.ID] = v
	if r.Config.Value.GetMetadata() != nil && r.Sandbox.Value.GetMetadata() != nil {
		t.names[Name(r)] = r.ID
	}
	return v
}

// ForgetRefused removes a container whose record is lost, once its guest has ended.
func (t *Table) ForgetRefused(v *VM) {
	id := v.Record().ID
	t.forget(v)
	t.Refusals.remove(id)
}

// RefuseSandbox enters a sandbox whose record cannot be used. r has what is known of it.
func (t *Table) RefuseSandbox(r record.Sandbox, reason error) {
	_ = t.Refusals.add("sandbox", r.ID, reason)
	t.RecoverSandbox(r)
}

// Knows reports whether the node has a container with this whole ID, also one whose
// record cannot be used.
func (t *Table) Knows(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.vms[id] != nil
}
