package vm

import (
	"fmt"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Stats returns what a VM container uses: CPU and memory of the processes
// around the machine, and what its overlay takes on disk.
func (m *Manager) Stats(id string) (*runtimeapi.ContainerStats, error) {
	c, err := m.find(id)
	if err != nil {
		return nil, err
	}
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
		return s, nil
	}
	g, err := cgroup.Open(r.Sandbox.Value.GetLinux().GetCgroupParent(), r.ID)
	if err != nil {
		return nil, fmt.Errorf("stats of VM container %q: %w", r.ID, err)
	}
	used, err := g.Stats()
	if err != nil {
		return nil, fmt.Errorf("stats of VM container %q: %w", r.ID, err)
	}
	now := time.Now().UnixNano()
	s.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(used.CPU)}
	s.Memory = &runtimeapi.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: value(used.WorkingSet),
		UsageBytes:      value(used.Memory),
		RssBytes:        value(used.RSS),
		PageFaults:      value(used.PageFaults),
		MajorPageFaults: value(used.MajorPageFaults),
	}
	if used.MemoryLimit > used.WorkingSet {
		s.Memory.AvailableBytes = value(used.MemoryLimit - used.WorkingSet)
	}
	s.Swap = &runtimeapi.SwapUsage{Timestamp: now, SwapUsageBytes: value(used.Swap)}
	return s, nil
}

// ListStats returns the stats of the running VM containers that pass a filter.
// One whose figures can't be read is left out: it must not blind the others.
func (m *Manager) ListStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	var list []*runtimeapi.ContainerStats
	for _, c := range m.List(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
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

// writableLayer is what the machine's overlay really takes. Its mount point is
// that of the file system which containerd's image store is on, as far as the
// kubelet is concerned.
func (m *Manager) writableLayer(r record.Container) *runtimeapi.FilesystemUsage {
	var st syscall.Stat_t
	if err := syscall.Stat(m.path(r.ID, overlayFile), &st); err != nil {
		return nil
	}
	return &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: m.ImageFS},
		UsedBytes:  value(uint64(st.Blocks) * 512),
		InodesUsed: value(1),
	}
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
