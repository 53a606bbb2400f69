package vm

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// Progress is how far a disk is that is being expanded.
type Progress = expand.Progress

// progress is that of all disks of a making.
type progress struct {
	mu    sync.Mutex
	disks []diskProgress // in the order in which they are made
}

type diskProgress struct {
	name string
	Progress
	told  float64 // when it was logged last
	since time.Time
}

// step is after how much of a disk its progress is logged again.
const step = 0.1

// set notes how far a disk is, and tells whether that is worth a line in the log.
func (p *progress) set(disk string, now Progress) (tell bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.disks, func(d diskProgress) bool { return d.name == disk })
	if i < 0 {
		i = len(p.disks)
		p.disks = append(p.disks, diskProgress{name: disk, told: -step, since: time.Now()})
	}
	d := &p.disks[i]
	waited := now.Waiting && !d.Waiting
	d.Progress = now
	if !now.Waiting && now.Done >= d.told+step {
		d.told = now.Done
		return true
	}
	return waited
}

// list is the progress of the disks that are begun.
func (p *progress) list() []vminfo.DiskProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []vminfo.DiskProgress
	for _, d := range p.disks {
		all = append(all, vminfo.DiskProgress{Disk: d.name, Waiting: d.Waiting, Done: d.Done, Since: d.since})
	}
	return all
}

// String is the progress for an error.
func (p *progress) String() string {
	var parts []string
	for _, d := range p.list() {
		parts = append(parts, fmt.Sprintf("disk %q is being expanded: %s", d.Disk, percent(Progress{Waiting: d.Waiting, Done: d.Done})))
	}
	if len(parts) == 0 {
		return "its disks are being made"
	}
	return strings.Join(parts, ", ")
}

func percent(p Progress) string {
	if p.Waiting {
		return "waiting for other disks"
	}
	return fmt.Sprintf("%.0f %%", 100*p.Done)
}

// Making is the container that is being made in a sandbox, nil where there is none.
func (m *Manager) Making(sandboxID string) *vminfo.Making {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, k := range m.makings {
		if k.rec.SandboxID == sandboxID {
			return &vminfo.Making{Container: k.rec.Config.Value.GetMetadata().GetName(), Disks: k.progress.list()}
		}
	}
	return nil
}

// expanding are the disks that are being expanded. Two pods of one name, as crictl
// can make them, would be one series: the first is told.
func (m *Manager) expanding() []metrics.Expansion {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var all []metrics.Expansion
	for _, k := range m.makings {
		pod := k.rec.Sandbox.Value.GetMetadata()
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
