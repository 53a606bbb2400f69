package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Stats returns what a VM container uses: CPU and memory of the processes
// around the machine, and what its overlay takes on disk. One that does not run
// has the overlay alone.
func (m *Manager) Stats(id string) (*runtimeapi.ContainerStats, error) {
	c, err := m.find(id)
	if err != nil {
		return nil, err
	}
	s, _, err := m.stats(c)
	return s, err
}

// stats are a container's stats and the counters of its group that they are
// made of; without a group, as where the machine does not run, there are none.
func (m *Manager) stats(c *machine) (*runtimeapi.ContainerStats, cgroup.Stats, error) {
	r := c.record()
	s := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          r.ID,
			Metadata:    r.Config.Value.GetMetadata(),
			Labels:      r.Config.Value.GetLabels(),
			Annotations: r.Config.Value.GetAnnotations(),
		},
		WritableLayer: m.writableLayer(r),
	}
	if r.State != record.Running {
		return s, cgroup.Stats{}, nil
	}
	used, err := m.used(r)
	if errors.Is(err, fs.ErrNotExist) {
		return s, cgroup.Stats{}, nil // it has just ended
	}
	if err != nil {
		return nil, cgroup.Stats{}, fmt.Errorf("stats of VM container %q: %w", r.ID, err)
	}
	now := time.Now()
	fillUsage(s, used, now)
	s.Cpu.UsageNanoCores = c.cpu.rate(cpuSample{now, used.CPU}, r.StartedAt)
	return s, used, nil
}

// used reads the counters of a machine's group.
func (m *Manager) used(r record.Container) (cgroup.Stats, error) {
	g, err := cgroup.Open(r.Sandbox.Value.GetLinux().GetCgroupParent(), r.ID)
	if err != nil {
		return cgroup.Stats{}, err
	}
	return g.Stats()
}

// fillUsage says a group's counters in CRI's fields, as containerd fills them,
// and adds swap.
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

// ListStats returns the stats of the VM containers that pass a filter, those
// that don't run included. One whose figures can't be read is left out: it must
// not blind the others.
func (m *Manager) ListStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	var list []*runtimeapi.ContainerStats
	for _, c := range m.List(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
	}) {
		s, err := m.Stats(c.GetId())
		if err != nil {
			m.Logger.Warn("reading the stats of a VM failed", "error", err)
			continue
		}
		list = append(list, s)
	}
	return list
}

// writableLayer is what the machine's own disks really take. Its mount point is
// that of the file system which containerd's image store is on, as far as the
// kubelet is concerned.
func (m *Manager) writableLayer(r record.Container) *runtimeapi.FilesystemUsage {
	used := &runtimeapi.FilesystemUsage{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: m.ImageFS},
		UsedBytes: value(0), InodesUsed: value(0),
	}
	for _, path := range m.Disks.Writable(r) {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			used.UsedBytes.Value += uint64(st.Blocks) * 512
			used.InodesUsed.Value++
		}
	}
	return used
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
