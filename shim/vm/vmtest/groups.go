package vmtest

import (
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
)

// Groups is a fake of package resources' Groups.
type Groups struct {
	script *Script

	mu     sync.Mutex
	groups map[string]*fakeGroup
}

type fakeGroup struct {
	pids   []int
	limits cgroup.Limits
	kills  uint64
	stats  cgroup.Stats
	frozen bool
}

// NewGroups returns a node without cgroups of VMs.
func NewGroups(s *Script) *Groups { return &Groups{script: s, groups: map[string]*fakeGroup{}} }

// on calls do with a VM's group, or returns fs.ErrNotExist.
func (g *Groups) on(call string, r record.Container, do func(*fakeGroup)) error {
	if err := g.script.note("Groups." + call); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.groups[r.ID]
	if group == nil {
		return fmt.Errorf("%s: cgroup %s: %w", call, r.ID, fs.ErrNotExist)
	}
	do(group)
	return nil
}

// Create implements resources'.
func (g *Groups) Create(r record.Container) error {
	if err := g.script.note("Groups.Create"); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.groups[r.ID] == nil {
		g.groups[r.ID] = &fakeGroup{}
	}
	g.groups[r.ID].limits = g.Limits(r)
	return nil
}

// Add implements resources'.
func (g *Groups) Add(r record.Container, pid int) error {
	return g.on("Add", r, func(group *fakeGroup) { group.pids = append(group.pids, pid) })
}

// Set implements resources'.
func (g *Groups) Set(r record.Container) error {
	return g.on("Set", r, func(group *fakeGroup) { group.limits = g.Limits(r) })
}

// Remove implements resources'. It does not know which processes have ended, so
// that it refuses no group.
func (g *Groups) Remove(r record.Container) error {
	if err := g.script.note("Groups.Remove"); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, r.ID)
	return nil
}

// Kill implements resources'. It does not know QEMU.
func (g *Groups) Kill(r record.Container) (killed []string, err error) {
	err = g.on("Kill", r, func(group *fakeGroup) {
		for _, pid := range group.pids {
			killed = append(killed, fmt.Sprintf("process (%d)", pid))
		}
		group.pids = nil
	})
	return killed, err
}

// Frozen implements resources'.
func (g *Groups) Frozen(r record.Container) (thaw string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if group := g.groups[r.ID]; group != nil && group.frozen {
		return "echo 0 > cgroup.freeze", nil
	}
	return "", nil
}

// Freeze freezes a VM's group.
func (g *Groups) Freeze(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[id].frozen = true
}

// OOMKills implements resources'.
func (g *Groups) OOMKills(r record.Container) (n uint64, err error) {
	err = g.on("OOMKills", r, func(group *fakeGroup) { n = group.kills })
	return n, err
}

// Stats implements resources'.
func (g *Groups) Stats(r record.Container) (s cgroup.Stats, err error) {
	err = g.on("Stats", r, func(group *fakeGroup) { s = group.stats })
	return s, err
}

// Limits implements resources'.
func (g *Groups) Limits(r record.Container) cgroup.Limits {
	return resources.Groups{Overhead: 128 << 20}.Limits(r)
}

// SetUse sets the counters of a VM's group, which it makes if it is missing.
func (g *Groups) SetUse(id string, s cgroup.Stats, oomKills uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.groups[id] == nil {
		g.groups[id] = &fakeGroup{}
	}
	g.groups[id].stats, g.groups[id].kills = s, oomKills
}

// Of returns a group's limits and processes; ok is false if it is missing.
func (g *Groups) Of(id string) (l cgroup.Limits, pids []int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group, ok := g.groups[id]
	if !ok {
		return l, nil, false
	}
	return group.limits, slices.Clone(group.pids), true
}

// Left returns the groups that there are.
func (g *Groups) Left() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for id := range g.groups {
		all = append(all, "cgroup of "+id)
	}
	return all
}
