package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Limits are the fields of CRI's LinuxContainerResources for a group. The zero value of a field keeps
// that limit.
type Limits struct {
	Memory         int64  // bytes; -1 means no limit
	MemorySwap     int64  // bytes of memory and swap together; -1 means no limit
	CPUShares      uint64 // 2 to 262144; on v2 converted to a weight
	CPUQuota       int64  // µs of CPU time per CPUPeriod; -1 means no limit
	CPUPeriod      uint64 // µs
	CPUSetCPUs     string // a list such as "0-3,7"
	CPUSetMems     string // NUMA nodes, as a list
	HugepageLimits []HugepageLimit
	Unified        map[string]string // file → content; v2 only
}

// HugepageLimit is the limit for huge pages of one size.
type HugepageLimit struct {
	PageSize string // "2MB", "1GB"
	Bytes    uint64
}

// Set changes the limits of the group. With systemd, the limits of a group without a process apply
// from its first process on. Set fails if the group uses more memory than a lower limit allows.
func (g *Group) Set(l Limits) error {
	g.remember(l)
	if g.config.Systemd && !g.exists() {
		return nil
	}
	return g.set(l)
}

func (g *Group) set(l Limits) error {
	if err := g.man.Set(g.resources(l)); err != nil {
		return fmt.Errorf("set limits of cgroup %s: %w", g.Path(), err)
	}
	return nil
}

// resources returns l as the library's type. Like containerd, it leaves out a swap limit if the kernel
// does not count swap, and limits of huge pages if their controller is missing: the kubelet always
// sends both.
func (g *Group) resources(l Limits) *cgroups.Resources {
	r := &cgroups.Resources{
		Memory: l.Memory, MemorySwap: l.MemorySwap,
		CpuShares: l.CPUShares, CpuQuota: l.CPUQuota, CpuPeriod: l.CPUPeriod,
		CpusetCpus: l.CPUSetCPUs, CpusetMems: l.CPUSetMems,
		SkipDevices: true,
		// Freezing protects a change of device rules. There are none, and a frozen guest loses time.
		SkipFreezeOnSet: true,
	}
	if cgroups.IsCgroup2UnifiedMode() {
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(l.CPUShares)
	} else if !cgroups.PathExists(filepath.Join(g.paths["memory"], "memory.memsw.limit_in_bytes")) {
		r.MemorySwap = 0
	}
	if len(l.Unified) > 0 { // an empty map already is an error on v1
		r.Unified = l.Unified
	}
	if g.hasHugepages() {
		for _, h := range l.HugepageLimits {
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: h.PageSize, Limit: h.Bytes})
		}
	}
	return r
}

func (g *Group) hasHugepages() bool {
	if !cgroups.IsCgroup2UnifiedMode() {
		return g.paths["hugetlb"] != ""
	}
	controllers, err := os.ReadFile(filepath.Join(g.Path(), "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}
