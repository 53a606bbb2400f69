// Package cgroup places the processes of one VM container, QEMU and its dnsmasq, in a control group
// of the pod, so that the kubelet's accounting and the OOM killer see what the VM really uses.
//
// It owns one leaf group per VM container, its limits, and the reading of its counters. How groups
// are made on cgroup v1 and v2, by hand or through systemd, is the business of
// github.com/opencontainers/cgroups, which runc and the kubelet use as well. The pod's own group
// belongs to the kubelet, and processes belong to those who started them: nothing is killed here.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Group is the control group of one VM container. It holds no descriptors: after a restart of the
// shim, Open with the same arguments gives the same group. Its methods may be called concurrently.
type Group struct {
	config *cgroups.Cgroup
	own    string // the parent that nodevirt makes for pods that bring none, or ""
	man    cgroups.Manager
	paths  map[string]string // by controller; the one key of v2 is ""

	mu     sync.Mutex
	limits *Limits // the last of Create or Set, for a systemd scope that has to be started anew
}

// Open names the group of the container id under the pod's parent, which is linux.cgroup_parent of
// the CRI sandbox as it came. It touches no group. See config.go for how the name is made.
func Open(parent, id string) (*Group, error) { return open(parent, id, ownParent) }

func open(parent, id, own string) (*Group, error) {
	config, err := groupConfig(parent, id, own)
	if err != nil {
		return nil, err
	}
	man, err := manager.New(config)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s under %q: %w", id, parent, err)
	}
	g := &Group{config: config, man: man, paths: maps.Clone(man.GetPaths())}
	if parent == "" {
		g.own = own
	}
	// The library does not make the group in the devices hierarchy while devices are skipped, but
	// moves processes there all the same. The flag has done its part: it let the hierarchy be
	// absent.
	config.SkipDevices = g.paths["devices"] == ""
	return g, nil
}

// Path is the group's directory: on v1 the one in the memory hierarchy, if that is mounted.
func (g *Group) Path() string {
	for _, controller := range []string{"memory", "pids", "cpu", "devices", "name=systemd", ""} {
		if path := g.paths[controller]; path != "" {
			return path
		}
	}
	return ""
}

// Create makes the group with limits l, or sets l where the group is there already. What it made it
// takes back when it fails.
//
// With systemd the group is a scope, and systemd knows no scope without a process: there the first
// Add makes it.
func (g *Group) Create(l Limits) (err error) {
	g.remember(l)
	existed := g.exists()
	if g.config.Systemd && !existed {
		return nil
	}
	defer func() {
		if err != nil && !existed {
			err = errors.Join(err, g.Remove())
		}
	}()
	if err := g.apply(noProcess); err != nil {
		return fmt.Errorf("create cgroup %s: %w", g.Path(), err)
	}
	return g.set(l)
}

// noProcess makes the library create a group without moving a process into it.
const noProcess = -1

// apply creates the group. A neighbour's Remove may take the empty parent away between the
// creation of the parent and that of the group: then the second try makes both.
func (g *Group) apply(pid int) error {
	err := g.man.Apply(pid)
	if g.own != "" && errors.Is(err, fs.ErrNotExist) {
		return g.man.Apply(pid)
	}
	return err
}

// Add moves the process pid into the group with all its threads. Memory that it took before stays
// charged to the group that it came from. It fails when the group has not been created, or pid is
// gone.
func (g *Group) Add(pid int) error {
	if pid <= 0 { // the kernel reads 0 as the writer: that would move the shim
		return fmt.Errorf("add process %d to cgroup %s: not a process id", pid, g.Path())
	}
	if g.config.Systemd && !g.exists() {
		return g.startScope(pid)
	}
	if err := g.man.AddPid("", pid); err != nil {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, g.Path(), err)
	}
	return nil
}

// startScope makes the systemd scope with its first process. A scope ends with its last process, so
// this happens again when the group ran empty in between.
func (g *Group) startScope(pid int) error {
	limits, ok := g.remembered()
	if !ok {
		return fmt.Errorf("add process %d to cgroup %s: it does not exist: create it first", pid, g.Path())
	}
	if err := g.apply(pid); err != nil {
		return fmt.Errorf("start the systemd scope of cgroup %s with process %d: %w", g.Path(), pid, err)
	}
	return g.set(limits)
}

// PIDs lists the processes of the group. A group that does not exist has none.
func (g *Group) PIDs() ([]int, error) {
	pids, err := cgroups.GetAllPids(g.Path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.Path(), err)
	}
	return pids, nil
}

func (g *Group) exists() bool { return cgroups.PathExists(g.Path()) }

func (g *Group) remember(l Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits = &l
}

func (g *Group) remembered() (Limits, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limits == nil {
		return Limits{}, false
	}
	return *g.limits, true
}
