package report

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// groups reads the cgroups of VMs; package resources' Groups.
type groups interface {
	// Stats and OOMKills return fs.ErrNotExist for a group that is gone.
	Stats(r record.Container) (cgroup.Stats, error)
	OOMKills(r record.Container) (uint64, error)
	Limits(r record.Container) cgroup.Limits
}

// Stats measures what VMs use.
type Stats struct {
	groups  groups
	disks   disks
	layout  layout.Layout
	imageFS string
	log     *slog.Logger
	cpu     table.PerVM[*cpuRate]
}

// NewStats returns Stats.
func NewStats(o Options) *Stats {
	s := &Stats{groups: o.Groups, disks: o.Disks, layout: o.Layout, imageFS: o.ImageFS, log: o.Logger}
	s.cpu.New = func(*table.VM) *cpuRate { return &cpuRate{} }
	return s
}

// of returns a container's stats: CPU and memory of the processes around the
// guest, and what its overlay takes on disk. It also returns the counters of the
// group, which are zero if the VM does not run.
func (s *Stats) of(v *table.VM) (*runtimeapi.ContainerStats, cgroup.Stats, error) {
	r := v.Record()
	reply := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          r.ID,
			Metadata:    r.Config.Value.GetMetadata(),
			Labels:      r.Config.Value.GetLabels(),
			Annotations: r.Config.Value.GetAnnotations(),
		},
		WritableLayer: s.writableLayer(r),
	}
	if r.State != record.Running {
		return reply, cgroup.Stats{}, nil
	}
	used, err := s.groups.Stats(r)
	if errors.Is(err, fs.ErrNotExist) {
		return reply, cgroup.Stats{}, nil // it has just ended
	}
	if err != nil {
		return nil, cgroup.Stats{}, fmt.Errorf("stats of VM container %q: %w", r.ID, err)
	}
	now := time.Now()
	fillUsage(reply, used, now)
	reply.Cpu.UsageNanoCores = s.cpu.Of(v).rate(cpuSample{now, used.CPU}, r.StartedAt)
	return reply, used, nil
}

// writableLayer is what the VM's own disks and QEMU's log take. The kubelet expects as its
// mount point the file system of containerd's image store.
func (s *Stats) writableLayer(r record.Container) *runtimeapi.FilesystemUsage {
	used := &runtimeapi.FilesystemUsage{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: s.imageFS},
		UsedBytes: value(0), InodesUsed: value(0),
	}
	for _, path := range append(s.disks.Writable(r), s.layout.DomainLog(r.Domain.Name)) {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			used.UsedBytes.Value += uint64(st.Blocks) * 512
			used.InodesUsed.Value++
		}
	}
	return used
}

// Stats returns the stats of a VM container. A container that does not run has
// its writable layer alone.
func (p *Reports) Stats(id string) (*runtimeapi.ContainerStats, error) {
	v, err := p.table.Find(id)
	if err != nil {
		return nil, err
	}
	s, _, err := p.stats.of(v)
	return s, err
}

// ListStats returns the stats of the VM containers that pass a filter, including
// those that don't run. It leaves out a VM whose counters can't be read, so that
// the VM does not hide the others.
func (p *Reports) ListStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	var list []*runtimeapi.ContainerStats
	for _, c := range p.List(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
	}) {
		s, err := p.Stats(c.GetId())
		if err != nil {
			p.stats.log.Warn("reading the stats of a VM failed", "error", err)
			continue
		}
		list = append(list, s)
	}
	return list
}
