// Package cgroup places the processes of one VM container, QEMU and its dnsmasq, in a control group
// of the pod, so that the kubelet's accounting and the OOM killer include all resources of the VM.
//
// It owns one leaf group for each VM container, its limits and its counters. It leaves the pod's own
// group to the kubelet, and the end of processes to the packages that started them. The library
// github.com/opencontainers/cgroups, which runc and the kubelet use too, creates groups on cgroup v1
// and v2, directly or through systemd.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Group is the control group of one VM container. It holds no descriptors: after a restart of the
// shim, Open with the same arguments gives the same group. Its methods may be called concurrently.
type Group struct {
	config *cgroups.Cgroup
	own    string // the parent that nodevirt creates for pods without one, or ""
	man    cgroups.Manager
	paths  map[string]string // by controller; v2 has the one key ""

	mu     sync.Mutex
	limits *Limits // those of the last Create or Set, for a systemd scope that must start again
}

// Open returns the group of the container id below the pod's parent, which is linux.cgroup_parent of
// the CRI sandbox. It changes no group. See config.go for the names.
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
	// With SkipDevices the library does not create the group in the devices hierarchy, but still
	// moves processes there. The flag is needed above alone, where it allows the hierarchy to be
	// absent.
	config.SkipDevices = g.paths["devices"] == ""
	return g, nil
}

// Path returns the group's directory: on v1 the one in the memory hierarchy, if that is mounted.
func (g *Group) Path() string {
	for _, controller := range []string{"memory", "pids", "cpu", "devices", "name=systemd", ""} {
		if path := g.paths[controller]; path != "" {
			return path
		}
	}
	return ""
}

// Create creates the group with limits l, or sets l if the group exists. If it fails, it removes the
// group that it created.
//
// With systemd the group is a scope. A scope needs a process, so the first Add creates it.
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

// apply creates the group. The Remove of another group may remove the empty parent between the
// creation of the parent and that of the group: then the second attempt creates both.
func (g *Group) apply(pid int) error {
	err := g.man.Apply(pid)
	if g.own != "" && errors.Is(err, fs.ErrNotExist) {
		return g.man.Apply(pid)
	}
	return err
}

// Remember has the first Add of a systemd scope that does not exist set limits l. It changes no group.
func (g *Group) Remember(l Limits) { g.remember(l) }

// Add moves the process pid with all its threads into the group. Its present memory stays charged to
// its former group. Add fails if the group or the process does not exist.
func (g *Group) Add(pid int) error {
	if pid <= 0 { // for the kernel 0 means the writer, which is the shim
		return fmt.Errorf("add process %d to cgroup %s: not a process id", pid, g.Path())
	}
	if g.config.Systemd && !g.complete() {
		return g.startScope(pid)
	}
	if err := g.man.AddPid("", pid); err != nil {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, g.Path(), err)
	}
	return nil
}

// startScope creates the systemd scope with its first process. A scope ends with its last process. So
// startScope runs again if the group was empty in between.
func (g *Group) startScope(pid int) error {
	limits, ok := g.remembered()
	if !ok {
		return fmt.Errorf("add process %d to cgroup %s: the cgroup does not exist: create it first", pid, g.Path())
	}
	err := g.apply(pid)
	if err != nil && strings.Contains(err.Error(), unitExists) && g.join(pid) == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start the systemd scope of cgroup %s with process %d: %w", g.Path(), pid, err)
	}
	return g.set(limits)
}

// unitExists is in systemd's error if a unit that should start has been started.
const unitExists = "was already loaded"

// join adds a process to the scope that another Add starts at the same time: QEMU and dnsmasq start side by
// side. The scope's groups may not be complete yet.
func (g *Group) join(pid int) error {
	deadline := time.Now().Add(emptyWait)
	for pause := emptyPoll; ; pause *= 2 {
		err := g.man.AddPid("", pid)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// PIDs returns the processes of the group. A group that does not exist has none.
func (g *Group) PIDs() ([]int, error) {
	pids, err := cgroups.GetAllPids(g.Path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.Path(), err)
	}
	return pids, nil
}

func (g *Group) exists() bool { return cgroups.PathExists(g.Path()) }

// complete reports whether the group exists for every controller. On v1, systemd and the library create
// a scope's groups one after the other, so that for a moment only some exist.
func (g *Group) complete() bool {
	for _, path := range g.paths {
		if !cgroups.PathExists(path) {
			return false
		}
	}
	return true
}

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
