package table

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// store writes records; [record.Store] is one.
type store interface {
	PutContainer(r record.Container) error
	RemoveContainer(id string) error
	PutSandbox(r record.Sandbox) error
	RemoveSandbox(id string) error
}

// Table holds the VMs and the sandboxes of one node. All methods may be called
// from any goroutine.
type Table struct {
	// Refusals are the containers and sandboxes that no call changes.
	Refusals Refusals
	// UsersInUse returns the user IDs of VMs that processes of the node have: no new VM shares a guest's, whatever is
	// known of that guest. nil for none. Set it before the first call.
	UsersInUse func() (map[uint32]bool, error)

	store store
	users users

	mu        sync.RWMutex
	sandboxes map[string]record.Sandbox
	vms       map[string]*VM
	names     map[string]string // reserved container name → id
}

// New returns an empty table. It gives out count user ids from base on.
func New(s store, base, count uint32) *Table {
	return &Table{
		store: s, users: users{base: base, count: count},
		sandboxes: map[string]record.Sandbox{}, vms: map[string]*VM{},
		names: map[string]string{},
	}
}

// Put writes a VM's record to disk, then publishes it. The caller has the VM's turn.
func (t *Table) Put(v *VM, r record.Container) error {
	if err := t.store.PutContainer(r); err != nil {
		return err
	}
	v.Publish(r)
	return nil
}

// Save writes a record to disk alone.
func (t *Table) Save(r record.Container) error { return t.store.PutContainer(r) }

// Recover enters a VM that an earlier shim process made.
func (t *Table) Recover(r record.Container) *VM {
	v := NewVM(r)
	v.recovered = true
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vms[r.ID] = v
	t.names[Name(r)] = r.ID
	return v
}

// Reserve enters a VM, and takes its container name and its user ids.
// The name has containerd's form. A pod holds one VM that has not ended. The VM's creation
// is later than that of the pod's other VMs, also if the clock was set back since.
func (t *Table) Reserve(v *VM) error {
	r := v.Record()
	name := Name(r)
	used, err := inUse(t.UsersInUse)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.sandboxes[r.SandboxID]; !ok {
		return fmt.Errorf("sandbox %q was removed meanwhile: %w", r.SandboxID, vmerrors.ErrNotFound)
	}
	if id, taken := t.names[name]; taken {
		return fmt.Errorf("container name %q is reserved for %q: %w", name, id, vmerrors.ErrExists)
	}
	for _, other := range t.vms {
		o := other.Record()
		if o.SandboxID != r.SandboxID {
			continue
		}
		if before := o.CreatedAt.Round(0); !r.CreatedAt.Round(0).After(before) { // as the records have it
			r.CreatedAt = before.Add(1)
		}
		if o.State != record.Exited {
			return fmt.Errorf("pod %s/%s: VM container %q (%s) %w: a pod holds one VM at a time, "+
				"so remove that one first, or use another pod",
				r.Sandbox.Value.GetMetadata().GetNamespace(), r.Sandbox.Value.GetMetadata().GetName(),
				o.Config.Value.GetMetadata().GetName(), o.ID, vmerrors.ErrExists)
		}
	}
	wanted := 1
	if r.Spec.TPM {
		wanted = 2
	}
	uids, err := t.users.free(maps.Values(t.vms), used, wanted)
	if err != nil {
		return err
	}
	r.Domain.UID, r.Domain.GID = uids[0], uids[0]
	if r.Spec.TPM {
		r.Domain.TPMUID = uids[1]
	}
	v.Publish(r)
	t.names[name] = r.ID
	t.vms[r.ID] = v
	return nil
}

func inUse(users func() (map[uint32]bool, error)) (map[uint32]bool, error) {
	if users == nil {
		return nil, nil
	}
	used, err := users()
	if err != nil {
		return nil, fmt.Errorf("find the users of VMs that run: %w", err)
	}
	return used, nil
}

// Remove removes a VM's record, then the VM. If the record stays, so does the
// VM. The caller has the VM's turn.
func (t *Table) Remove(v *VM) error {
	if err := t.store.RemoveContainer(v.Record().ID); err != nil {
		return err
	}
	t.forget(v)
	return nil
}

// Drop removes a VM whose creation failed, also if its record stays: the next
// start of the shim removes the record. The caller has the VM's turn.
func (t *Table) Drop(v *VM) error {
	defer t.forget(v)
	return t.store.RemoveContainer(v.Record().ID)
}

func (t *Table) forget(v *VM) {
	v.gone.Store(true)
	r := v.Record()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vms[r.ID] == v {
		delete(t.vms, r.ID)
	}
	if t.names[Name(r)] == r.ID {
		delete(t.names, Name(r))
	}
	v.end()
}

// Name is the container's name, which is unique on a node. containerd builds it the same way.
func Name(r record.Container) string {
	c, p := r.Config.Value.GetMetadata(), r.Sandbox.Value.GetMetadata()
	return fmt.Sprintf("%s_%s_%s_%s_%d", c.GetName(), p.GetName(), p.GetNamespace(), p.GetUid(), c.GetAttempt())
}

// PodName is the name of the VM's pod, with its namespace.
func PodName(r record.Container) string {
	pod := r.Sandbox.Value.GetMetadata()
	return pod.GetNamespace() + "/" + pod.GetName()
}

// Logger adds the names of a VM's pod and container to a logger.
func Logger(log *slog.Logger, r record.Container) *slog.Logger {
	pod := r.Sandbox.Value.GetMetadata()
	return log.With(
		slog.Group("pod", "namespace", pod.GetNamespace(), "name", pod.GetName()),
		slog.Group("container", "name", r.Config.Value.GetMetadata().GetName(), "id", r.ID))
}

// hasPrefix returns the keys that begin with prefix.
func hasPrefix[V any](m map[string]V, prefix string) []string {
	var all []string
	for key := range m {
		if strings.HasPrefix(key, prefix) {
			all = append(all, key)
		}
	}
	return all
}
