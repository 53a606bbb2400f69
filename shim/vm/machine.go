package vm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// machine is a VM container in memory. Its record can be read at any time and
// is replaced as a whole, by whoever holds turn.
type machine struct {
	turn chan struct{} // one call at a time changes the machine
	rec  atomic.Pointer[record.Container]
	// exited is closed once the record says that the machine ended.
	exited chan struct{}
	// gone is set, by whoever holds turn, when the machine is in no table any more.
	gone atomic.Bool
	// panicked is set when the guest's kernel says so, before the machine ends.
	panicked atomic.Bool
	// rebooted is set while dnsmasq is away because the machine reboots.
	rebooted atomic.Bool
	// cpu is what the last stats told of it.
	cpu cpuRate
	// starved is set while a guest that QEMU stopped at a disk error is to go on.
	starved atomic.Bool

	// cleaning is set while what is left of an end is being taken back.
	cleaning atomic.Bool

	// paused is why the guest stands still, ReasonNone where it runs, nil where
	// libvirtd was not asked yet.
	paused atomic.Pointer[domain.Reason]
	// recovered says that an earlier shim made it.
	recovered bool

	agentOnce  sync.Once
	guestAgent *agent.Agent // see Manager.agent
}

func newMachine(r record.Container) *machine {
	c := &machine{turn: make(chan struct{}, 1), exited: make(chan struct{})}
	c.rec.Store(&r)
	if r.State == record.Exited {
		close(c.exited)
	}
	return c
}

// record is the machine's record as it was last written.
func (c *machine) record() record.Container { return *c.rec.Load() }

// lock waits for the machine's turn, or for ctx. A machine that was removed
// meanwhile is ErrNotFound: what is done for it, and recorded, nobody would take
// back.
func (c *machine) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another call on container %q: %w", c.record().ID, ctx.Err())
	}
	unlock = func() { <-c.turn }
	if c.gone.Load() {
		unlock()
		return nil, fmt.Errorf("container %q: %w: it was removed meanwhile", c.record().ID, ErrNotFound)
	}
	return unlock, nil
}

// put writes a machine's record to disk, then to memory.
func (m *Manager) put(c *machine, r record.Container) error {
	if err := m.Records.PutContainer(r); err != nil {
		return err
	}
	c.publish(r)
	return nil
}

// publish makes a record that is on disk, or that can't get there, the one that is told.
func (c *machine) publish(r record.Container) {
	was := c.rec.Swap(&r)
	if r.State == record.Exited && was.State != record.Exited {
		close(c.exited)
	}
}

// find returns the machine with an id, or the only one whose id begins so.
func (m *Manager) find(id string) (*machine, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if c, ok := m.machines[id]; ok {
		return c, nil
	}
	var found *machine
	if id != "" {
		for full, c := range m.machines {
			if !strings.HasPrefix(full, id) {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("container id %q: %w: several begin so", id, ErrNotFound)
			}
			found = c
		}
	}
	if found == nil {
		return nil, fmt.Errorf("container %q: %w", id, ErrNotFound)
	}
	return found, nil
}

// Has tells whether id, which may be shortened, is a VM container's.
func (m *Manager) Has(id string) bool {
	_, err := m.find(id)
	return err == nil
}

// all returns the machines, those of one sandbox only if it is named.
func (m *Manager) all(sandboxID string) []*machine {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var all []*machine
	for _, c := range m.machines {
		if sandboxID == "" || c.record().SandboxID == sandboxID {
			all = append(all, c)
		}
	}
	return all
}

// reserve takes a container's name, in containerd's form, and an id of the user
// range for it, and enters the machine into the table.
func (m *Manager) reserve(c *machine) error {
	r := c.record()
	name := containerName(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.sandboxes[r.SandboxID]; !ok {
		return fmt.Errorf("sandbox %q was removed meanwhile: %w", r.SandboxID, ErrNotFound)
	}
	if id, taken := m.names[name]; taken {
		return fmt.Errorf("container name %q is reserved for %q: %w", name, id, ErrExists)
	}
	for _, other := range m.machines {
		if o := other.record(); o.SandboxID == r.SandboxID && o.State != record.Exited {
			return fmt.Errorf("pod %s/%s: VM container %q (%s) %w: a pod holds one VM at a time, "+
				"so remove that one first, or use another pod",
				r.Sandbox.Value.GetMetadata().GetNamespace(), r.Sandbox.Value.GetMetadata().GetName(),
				o.Config.Value.GetMetadata().GetName(), o.ID, ErrExists)
		}
	}
	uid, err := m.freeUID()
	if err != nil {
		return err
	}
	r.Domain.UID, r.Domain.GID = uid, uid
	c.rec.Store(&r)
	m.names[name] = r.ID
	m.machines[r.ID] = c
	return nil
}

// forget takes a machine out of the tables. The caller has the machine's turn.
func (m *Manager) forget(c *machine) {
	c.gone.Store(true)
	r := c.record()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, r.ID)
	if m.names[containerName(r)] == r.ID {
		delete(m.names, containerName(r))
	}
}

// freeUID is the lowest user id that no machine has. The caller holds m.mu.
func (m *Manager) freeUID() (uint32, error) {
	taken := map[uint32]bool{}
	for _, c := range m.machines {
		taken[c.record().Domain.UID] = true
	}
	for n := range m.UIDCount {
		if uid := m.UIDBase + n; !taken[uid] && !m.lostUIDs[uid] {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d user ids for VMs are taken: widen vm.uid_count in the shim's config", m.UIDCount)
}

// containerName is unique on a node; containerd builds it the same way.
func containerName(r record.Container) string {
	c, p := r.Config.Value.GetMetadata(), r.Sandbox.Value.GetMetadata()
	return fmt.Sprintf("%s_%s_%s_%s_%d", c.GetName(), p.GetName(), p.GetNamespace(), p.GetUid(), c.GetAttempt())
}

// matches tells whether a container passes CRI's filter, whose ids are whole.
func matches(c *runtimeapi.Container, f *runtimeapi.ContainerFilter) bool {
	if f == nil {
		return true
	}
	if f.GetId() != "" && f.GetId() != c.GetId() ||
		f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.GetPodSandboxId() ||
		f.GetState() != nil && f.GetState().GetState() != c.GetState() {
		return false
	}
	for k, v := range f.GetLabelSelector() {
		if got, ok := c.GetLabels()[k]; !ok || got != v {
			return false
		}
	}
	return true
}
