package lifecycle

import (
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// pending are the creations that may outlive the calls that ask for them, by the
// names of their containers.
type pending struct {
	mu     sync.Mutex
	byName map[string]*creation
}

func (p *pending) find(name string) *creation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name]
}

func (p *pending) add(k *creation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[table.Name(k.draft.rec)] = k
}

func (p *pending) remove(k *creation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byName, table.Name(k.draft.rec))
}

// cancel ends the creation of a VM that is stopped or removed.
func (p *pending) cancel(v *table.VM) {
	if k := p.find(table.Name(v.Record())); k != nil && k.draft.vm == v {
		k.cancel(errStopped)
	}
}

// in returns what is made in a sandbox, nil if there is nothing.
func (p *pending) in(sandboxID string) *vminfo.Making {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.byName {
		if r := k.draft.rec; r.SandboxID == sandboxID {
			return &vminfo.Making{Container: r.Config.Value.GetMetadata().GetName(), Disks: k.progress.list()}
		}
	}
	return nil
}

// expanding returns the disks that are being expanded. Two pods with one name, as
// crictl can make them, would be one series: the first counts.
func (p *pending) expanding() []metrics.Expansion {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []metrics.Expansion
	for _, k := range p.byName {
		pod := k.draft.rec.Sandbox.Value.GetMetadata()
		for _, d := range k.progress.list() {
			e := metrics.Expansion{Namespace: pod.GetNamespace(), Name: pod.GetName(), Disk: d.Disk}
			if !slices.ContainsFunc(all, func(o metrics.Expansion) bool {
				return o.Namespace == e.Namespace && o.Name == e.Name && o.Disk == e.Disk
			}) {
				e.Done = d.Done
				all = append(all, e)
			}
		}
	}
	return all
}
