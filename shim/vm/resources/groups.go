package resources

import (
	"fmt"
	"math"
	"os"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Groups reads and changes the cgroups of VMs: one for each, below its pod's.
// All methods work from the record alone.
type Groups struct {
	// Overhead is the memory, in bytes, that QEMU may use beside the guest's RAM
	// in pods that name no overhead.
	Overhead int64
}

func (g Groups) open(r record.Container) (*cgroup.Group, error) {
	return cgroup.Open(r.Sandbox.Value.GetLinux().GetCgroupParent(), r.ID)
}

// Create makes the VM's group, with the limits of its resources.
func (g Groups) Create(r record.Container) error {
	group, err := g.open(r)
	if err != nil {
		return err
	}
	return group.Create(g.Limits(r))
}

// Remove removes the group. A missing one is no error.
func (g Groups) Remove(r record.Container) error {
	group, err := g.open(r)
	if err != nil {
		return err
	}
	return group.Remove()
}

// Add moves a process into the group. Where systemd manages cgroups, the first
// process makes the group.
func (g Groups) Add(r record.Container, pid int) error {
	group, err := g.open(r)
	if err != nil {
		return err
	}
	group.Remember(g.Limits(r)) // which systemd gets with the process
	return group.Add(pid)
}

// Kill kills the processes that are left in the group of a VM whose guest has ended, and returns their
// names. It kills nothing while the VM's QEMU is among them.
func (g Groups) Kill(r record.Container) (killed []string, err error) {
	group, err := g.open(r)
	if err != nil {
		return nil, err
	}
	pids, err := group.PIDs()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if domain.IsQEMU(pid, r.Domain.Name) {
			return nil, fmt.Errorf("kill the processes of cgroup %s: process %d is the QEMU of domain %s, whose guest runs; "+
				"end it with kill %d, which powers the guest off", group.Path(), pid, r.Domain.Name, pid)
		}
		killed = append(killed, fmt.Sprintf("%s (%d)", processName(pid), pid))
	}
	return killed, group.Kill()
}

// Frozen returns the command that lets the VM's processes run if its group is frozen; empty if it is not.
func (g Groups) Frozen(r record.Container) (thaw string, err error) {
	group, err := g.open(r)
	if err != nil {
		return "", err
	}
	return group.Frozen()
}

// processName returns the name of a process, for a log.
func processName(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "a process"
	}
	return strings.TrimSpace(string(name))
}

// Set changes the group's limits to those of the record's resources.
func (g Groups) Set(r record.Container) error {
	group, err := g.open(r)
	if err != nil {
		return err
	}
	return group.Set(g.Limits(r))
}

// OOMKills returns how many processes of the group the OOM killer has ended. For
// a group that is gone it returns fs.ErrNotExist.
func (g Groups) OOMKills(r record.Container) (uint64, error) {
	group, err := g.open(r)
	if err != nil {
		return 0, err
	}
	return group.OOMKills()
}

// Stats returns the group's counters. For a group that is gone it returns fs.ErrNotExist.
func (g Groups) Stats(r record.Container) (cgroup.Stats, error) {
	group, err := g.open(r)
	if err != nil {
		return cgroup.Stats{}, err
	}
	return group.Stats()
}

// Limits returns what the processes around one VM may use: the container's own
// limits, and beyond them what the pod's overhead, or the node's default, allows
// QEMU.
func (g Groups) Limits(r record.Container) cgroup.Limits {
	c, over := Of(r), r.Sandbox.Value.GetLinux().GetOverhead()
	memory := over.GetMemoryLimitInBytes()
	if memory <= 0 {
		memory = g.Overhead
	}
	return limits(c, over, memory)
}

func limits(c, over *runtimeapi.LinuxContainerResources, memory int64) cgroup.Limits {
	l := cgroup.Limits{
		Memory:     plus(c.GetMemoryLimitInBytes(), memory),
		MemorySwap: plus(c.GetMemorySwapLimitInBytes(), memory),
		CPUShares:  uint64(max(c.GetCpuShares(), 0)),
		CPUQuota:   c.GetCpuQuota(),
		CPUPeriod:  uint64(max(c.GetCpuPeriod(), 0)),
		CPUSetCPUs: c.GetCpusetCpus(),
		CPUSetMems: c.GetCpusetMems(),
		Unified:    c.GetUnified(),
	}
	if l.CPUQuota > 0 && over.GetCpuQuota() > 0 && over.GetCpuPeriod() == c.GetCpuPeriod() {
		l.CPUQuota += over.GetCpuQuota()
	}
	for _, h := range c.GetHugepageLimits() {
		l.HugepageLimits = append(l.HugepageLimits, cgroup.HugepageLimit{PageSize: h.GetPageSize(), Bytes: h.GetLimit()})
	}
	return l
}

// plus widens a limit; 0 (none) and -1 (lifted) stay what they are.
func plus(limit, more int64) int64 {
	if limit <= 0 {
		return limit
	}
	if limit > math.MaxInt64-more {
		return math.MaxInt64
	}
	return limit + more
}
