package cgroup

import (
	"fmt"
	"os"

	"github.com/opencontainers/cgroups"
)

// Stats are the counters of a group at one moment, in the meanings that CRI's ContainerStats gives
// them. Where a controller is missing its fields are zero.
type Stats struct {
	CPU              uint64 // ns used since the group was made
	CPUUser          uint64 // ns of it in user mode, where the guest's own time is under emulation
	CPUSystem        uint64 // ns of it in the kernel
	Periods          uint64 // of the CPU quota that went by
	ThrottledPeriods uint64 // of those in which the quota was used up
	Throttled        uint64 // ns that tasks waited for the next period
	CPUPressure      *Pressure

	Memory          uint64 // bytes charged, page cache included
	MemoryMax       uint64 // the most that it was
	MemoryFailures  uint64 // how often the limit was hit; v1 only
	MemoryLimit     uint64 // bytes; 0 = none
	WorkingSet      uint64 // bytes: Memory without the inactive page cache; what eviction looks at
	RSS             uint64 // bytes of anonymous memory, the guest's RAM among them
	Cache           uint64 // bytes of page cache
	MappedFile      uint64 // bytes of it that are mapped
	ActiveFile      uint64 // bytes of page cache in use
	InactiveFile    uint64 // bytes of page cache that can go at once
	Kernel          uint64 // bytes that the kernel took for the group
	PageFaults      uint64
	MajorPageFaults uint64
	MemoryPressure  *Pressure

	Swap          uint64 // bytes in swap
	SwapAvailable uint64 // bytes left below the limit of swap; 0 where that can't be told

	PIDs      uint64 // tasks: processes and their threads
	PIDsLimit uint64 // 0 = none

	// IO are the bytes and the operations, by device and kind, of block devices that the group's
	// processes waited for. Data that the kernel writes back later is in it on v2 only.
	IOBytes, IOs []DeviceIO
	IOPressure   *Pressure
}

// DeviceIO counts what went to or came from a block device.
type DeviceIO struct {
	Major, Minor uint64
	Op           string // "Read", "Write", and on v1 others such as "Sync" and "Total"
	Value        uint64
}

func deviceIO(raw []cgroups.BlkioStatEntry) []DeviceIO {
	var all []DeviceIO
	for _, e := range raw {
		all = append(all, DeviceIO{Major: e.Major, Minor: e.Minor, Op: e.Op, Value: e.Value})
	}
	return all
}

// unlimited is beyond any memory a machine has; v1 writes 2⁶³ rounded down to a page for "no
// limit".
const unlimited = 1 << 62

// Stats reads the group's counters. The error wraps fs.ErrNotExist when there is no such group.
func (g *Group) Stats() (Stats, error) {
	if _, err := os.Stat(g.Path()); err != nil {
		return Stats{}, fmt.Errorf("read counters of cgroup: %w", err)
	}
	raw, err := g.man.Stats(&cgroups.StatsOptions{
		Controllers: cgroups.CPU | cgroups.Memory | cgroups.Pids | cgroups.IO,
	})
	if err != nil {
		return Stats{}, fmt.Errorf("read counters of cgroup %s: %w", g.Path(), err)
	}
	return convert(raw), nil
}

func convert(raw *cgroups.Stats) Stats {
	s := Stats{
		PIDs:       raw.PidsStats.Current,
		IOBytes:    deviceIO(raw.BlkioStats.IoServiceBytesRecursive),
		IOs:        deviceIO(raw.BlkioStats.IoServicedRecursive),
		IOPressure: pressure(raw.BlkioStats.PSI),
	}
	if raw.PidsStats.Limit < unlimited {
		s.PIDsLimit = raw.PidsStats.Limit
	}
	s.setCPU(raw.CpuStats)
	s.setMemory(raw.MemoryStats)
	s.setSwap(raw.MemoryStats)
	return s
}

func (s *Stats) setCPU(raw cgroups.CpuStats) {
	s.CPU = raw.CpuUsage.TotalUsage
	s.CPUUser, s.CPUSystem = raw.CpuUsage.UsageInUsermode, raw.CpuUsage.UsageInKernelmode
	s.Periods, s.ThrottledPeriods = raw.ThrottlingData.Periods, raw.ThrottlingData.ThrottledPeriods
	s.Throttled = raw.ThrottlingData.ThrottledTime
	s.CPUPressure = pressure(raw.PSI)
}

func (s *Stats) setMemory(raw cgroups.MemoryStats) {
	s.Memory, s.MemoryMax, s.MemoryFailures = raw.Usage.Usage, raw.Usage.MaxUsage, raw.Usage.Failcnt
	s.RSS = either(raw.Stats, "total_rss", "anon")
	s.Cache = either(raw.Stats, "total_cache", "file")
	s.MappedFile = either(raw.Stats, "total_mapped_file", "file_mapped")
	s.ActiveFile = either(raw.Stats, "total_active_file", "active_file")
	s.InactiveFile = either(raw.Stats, "total_inactive_file", "inactive_file")
	s.PageFaults = either(raw.Stats, "total_pgfault", "pgfault")
	s.MajorPageFaults = either(raw.Stats, "total_pgmajfault", "pgmajfault")
	if s.Kernel = raw.KernelUsage.Usage; s.Kernel == 0 {
		s.Kernel = raw.Stats["kernel_stack"] // v2, as containerd tells it
	}
	if s.InactiveFile < s.Memory {
		s.WorkingSet = s.Memory - s.InactiveFile
	}
	if raw.Usage.Limit < unlimited {
		s.MemoryLimit = raw.Usage.Limit
	}
	s.MemoryPressure = pressure(raw.PSI)
}

func (s *Stats) setSwap(raw cgroups.MemoryStats) {
	limit := raw.SwapOnlyUsage.Limit
	// On v1 the library subtracts two counters that it reads one after the other, the second of
	// which may be missing: the result can wrap around. The limit is one of memory and swap.
	if swap, ok := raw.Stats["total_swap"]; ok {
		s.Swap, limit = swap, 0
		if raw.SwapUsage.Limit < unlimited && raw.SwapUsage.Limit > raw.Usage.Limit {
			limit = raw.SwapUsage.Limit - raw.Usage.Limit
		}
	} else if raw.SwapOnlyUsage.Usage < unlimited {
		s.Swap = raw.SwapOnlyUsage.Usage
	}
	if limit < unlimited && limit > s.Swap {
		s.SwapAvailable = limit - s.Swap
	}
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
