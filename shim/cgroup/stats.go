package cgroup

import (
	"fmt"
	"os"

	"github.com/opencontainers/cgroups"
)

// Stats are the counters of a group, with the meanings of CRI's ContainerStats. The fields of a missing
// controller are zero.
type Stats struct {
	CPU              uint64 // ns used since the group was created
	CPUUser          uint64 // ns of it in user mode, where the guest's own time is under emulation
	CPUSystem        uint64 // ns of it in the kernel
	Periods          uint64 // elapsed periods of the CPU quota
	ThrottledPeriods uint64 // periods in which the quota was used up
	Throttled        uint64 // ns that tasks waited for the next period
	CPUPressure      *Pressure

	Memory          uint64 // bytes charged, page cache included
	MemoryMax       uint64 // the maximum of Memory so far
	MemoryFailures  uint64 // how often the limit was hit; v1 only
	MemoryLimit     uint64 // bytes; 0 = none
	WorkingSet      uint64 // bytes: Memory without the inactive page cache; the value for evictions
	RSS             uint64 // bytes of anonymous memory, including the guest's RAM
	Cache           uint64 // bytes of page cache
	MappedFile      uint64 // bytes of it that are mapped
	ActiveFile      uint64 // bytes of page cache in use
	InactiveFile    uint64 // bytes of page cache that can be freed at once
	Kernel          uint64 // bytes of kernel memory
	PageFaults      uint64
	MajorPageFaults uint64
	MemoryPressure  *Pressure

	Swap          uint64 // bytes in swap
	SwapAvailable uint64 // bytes left below the limit of swap; 0 if unknown

	PIDs      uint64 // tasks: processes and their threads
	PIDsLimit uint64 // 0 = none

	// IO has the bytes and operations of block devices, by device and kind. On v1 it does not include
	// data that the kernel writes back later.
	IOBytes, IOs []DeviceIO
	IOPressure   *Pressure
}

// DeviceIO is a counter of one kind of operation on a block device.
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

// unlimited is more than the memory of any node. For "no limit" v1 has 2⁶³ rounded down to a page.
const unlimited = 1 << 62

// Stats returns the group's counters. The error wraps fs.ErrNotExist if the group does not exist.
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
		s.Kernel = raw.Stats["kernel_stack"] // v2, as containerd reports it
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

// either returns the counter with its v1 name, which includes the groups below, or with its v2 name.
func either(stats map[string]uint64, v1, v2 string) uint64 {
	if value, ok := stats[v1]; ok {
		return value
	}
	return stats[v2]
}

// OOMKills returns how many processes of the group the kernel has killed because memory ran out,
// whether of the group, the pod or the node. The error wraps fs.ErrNotExist if the group does not
// exist. A systemd scope ends with its last process, so call OOMKills before dnsmasq, which outlives
// QEMU, ends.
func (g *Group) OOMKills() (uint64, error) {
	kills, err := g.man.OOMKillCount()
	if err != nil {
		return 0, fmt.Errorf("read OOM kills of cgroup %s: %w", g.Path(), err)
	}
	return kills, nil
}
