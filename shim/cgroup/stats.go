package cgroup

import (
	"fmt"
	"os"

	"github.com/opencontainers/cgroups"
)

// Stats are the counters of a group at one moment, in the meanings that CRI's ContainerStats gives
// them. Where a controller is missing its fields are zero.
type Stats struct {
	CPU             uint64 // ns used since the group was made
	Memory          uint64 // bytes charged, page cache included
	MemoryLimit     uint64 // bytes; 0 = none
	WorkingSet      uint64 // bytes: Memory without the inactive page cache; what eviction looks at
	RSS             uint64 // bytes of anonymous memory, the guest's RAM among them
	PageFaults      uint64
	MajorPageFaults uint64
	Swap            uint64 // bytes in swap
	PIDs            uint64 // tasks: processes and their threads
}

// unlimited is beyond any memory a machine has; v1 writes 2⁶³ rounded down to a page for "no
// limit".
const unlimited = 1 << 62

// Stats reads the group's counters. The error wraps fs.ErrNotExist when there is no such group.
func (g *Group) Stats() (Stats, error) {
	if _, err := os.Stat(g.Path()); err != nil {
		return Stats{}, fmt.Errorf("read counters of cgroup: %w", err)
	}
	raw, err := g.man.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory | cgroups.Pids})
	if err != nil {
		return Stats{}, fmt.Errorf("read counters of cgroup %s: %w", g.Path(), err)
	}
	return convert(raw), nil
}

func convert(raw *cgroups.Stats) Stats {
	memory := raw.MemoryStats
	s := Stats{
		CPU:             raw.CpuStats.CpuUsage.TotalUsage,
		Memory:          memory.Usage.Usage,
		RSS:             either(memory.Stats, "total_rss", "anon"),
		PageFaults:      either(memory.Stats, "total_pgfault", "pgfault"),
		MajorPageFaults: either(memory.Stats, "total_pgmajfault", "pgmajfault"),
		PIDs:            raw.PidsStats.Current,
	}
	if inactive := either(memory.Stats, "total_inactive_file", "inactive_file"); inactive < s.Memory {
		s.WorkingSet = s.Memory - inactive
	}
	if memory.Usage.Limit < unlimited {
		s.MemoryLimit = memory.Usage.Limit
	}
	// On v1 the library subtracts two counters that it reads one after the other, the second of
	// which may be missing: the result can wrap around.
	if swap, ok := memory.Stats["total_swap"]; ok {
		s.Swap = swap
	} else if memory.SwapOnlyUsage.Usage < unlimited {
		s.Swap = memory.SwapOnlyUsage.Usage
	}
	return s
}

// either gives the counter under its name in v1, which counts the tree below as well, or in v2.
func either(stats map[string]uint64, v1, v2 string) uint64 {
	if value, ok := stats[v1]; ok {
		return value
	}
	return stats[v2]
}

// OOMKills says how many processes of the group the kernel has killed for lack of memory, be it the
// group's, the pod's or the machine's. The error wraps fs.ErrNotExist when there is no such group;
// a systemd scope ends with its last process, so ask before dnsmasq, which outlives QEMU, is
// stopped.
func (g *Group) OOMKills() (uint64, error) {
	kills, err := g.man.OOMKillCount()
	if err != nil {
		return 0, fmt.Errorf("read OOM kills of cgroup %s: %w", g.Path(), err)
	}
	return kills, nil
}
