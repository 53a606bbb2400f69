package report

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
)

// fillUsage translates a group's counters into CRI's fields, as containerd fills
// them, and adds swap.
func fillUsage(s *runtimeapi.ContainerStats, used cgroup.Stats, at time.Time) {
	now := at.UnixNano()
	s.Cpu = &runtimeapi.CpuUsage{
		Timestamp: now, UsageCoreNanoSeconds: value(used.CPU), Psi: psi(used.CPUPressure),
	}
	s.Memory = &runtimeapi.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: value(used.WorkingSet),
		AvailableBytes:  value(available(used)),
		UsageBytes:      value(used.Memory),
		RssBytes:        value(used.RSS),
		PageFaults:      value(used.PageFaults),
		MajorPageFaults: value(used.MajorPageFaults),
		Psi:             psi(used.MemoryPressure),
	}
	s.Swap = &runtimeapi.SwapUsage{
		Timestamp: now, SwapUsageBytes: value(used.Swap), SwapAvailableBytes: value(used.SwapAvailable),
	}
	if used.IOPressure != nil {
		s.Io = &runtimeapi.IoUsage{Timestamp: now, Psi: psi(used.IOPressure)}
	}
}

// available is what a group may take beyond its working set; 0 without a limit.
func available(used cgroup.Stats) uint64 {
	if used.MemoryLimit < used.WorkingSet {
		return 0
	}
	return used.MemoryLimit - used.WorkingSet
}

func psi(p *cgroup.Pressure) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	stall := func(s cgroup.Stall) *runtimeapi.PsiData {
		return &runtimeapi.PsiData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtimeapi.PsiStats{Some: stall(p.Some), Full: stall(p.Full)}
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
