package vm

import (
	"context"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
)

// askTime bounds one question to libvirtd or containerd for a snapshot.
const askTime = 1500 * time.Millisecond

// Snapshot is what there is on the node, for its metrics. What can't be read now
// is left out.
func (m *Manager) Snapshot(ctx context.Context) metrics.Snapshot {
	s := metrics.Snapshot{States: map[string]int{}}
	for _, state := range []record.State{record.Creating, record.Created, record.Starting, record.Running, record.Exited} {
		s.States[string(state)] = 0
	}
	var domains map[string]domain.Stats
	var wg sync.WaitGroup
	wg.Go(func() { domains = m.domainStats(ctx) })
	wg.Go(func() { m.imageFS(ctx, &s) })
	wg.Wait()
	s.Libvirt = domains != nil
	images := map[string]bool{}
	for _, c := range m.all("") {
		r := c.record()
		s.States[string(r.State)]++
		for _, d := range r.Disks {
			if d.Image != nil {
				images[d.Image.ImageID] = true
			}
		}
		if r.State == record.Running {
			s.VMs = append(s.VMs, m.describe(c, r, domains))
		}
	}
	s.Images = len(images)
	usage := m.Expander.Usage()
	s.Expanded, s.ExpandedBytes, s.Expanding = usage.Bases, usage.Bytes, m.expanding()
	return s
}

// domainStats asks libvirtd, and once more where it does not answer: a QEMU that
// hangs holds up the first call that meets it, and no other. It returns nil where
// libvirtd is away.
func (m *Manager) domainStats(ctx context.Context) map[string]domain.Stats {
	for range 2 {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		all, err := m.Driver.Stats(ctx)
		cancel()
		if err == nil {
			return all
		}
		m.Logger.Debug("reading the stats of domains failed", "error", err)
	}
	return nil
}

func (m *Manager) imageFS(ctx context.Context, s *metrics.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	reply, err := m.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	s.Containerd = err == nil
	for _, fs := range reply.GetImageFilesystems() {
		s.ImageFSUsed += fs.GetUsedBytes().GetValue()
	}
	var st syscall.Statfs_t
	if syscall.Statfs(m.ImageFS, &st) == nil {
		s.ImageFSSize, s.ImageFSFree = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	}
}

// describe is a machine that runs.
func (m *Manager) describe(c *machine, r record.Container, domains map[string]domain.Stats) metrics.VM {
	pod := r.Sandbox.Value.GetMetadata()
	vm := metrics.VM{
		Namespace: pod.GetNamespace(), Name: pod.GetName(),
		Started: r.StartedAt,
		RAM:     r.Spec.Memory,
		Overlay: m.writableLayer(r).GetUsedBytes().GetValue(),
	}
	if there := m.agent(c).State().Presence; there != agent.Unknown {
		present := there == agent.Present
		vm.Agent = &present
	}
	if used, err := m.used(r); err == nil {
		vm.Group = &used
	}
	if d, ok := domains[r.Domain.UUID]; ok {
		vm.Domain, vm.DiskNames = &d, domain.DiskNames(r.Spec)
	}
	vm.Cards = m.cards(r)
	return vm
}

func (m *Manager) cards(r record.Container) []metrics.Card {
	if r.Network == nil {
		return nil
	}
	all, err := m.Network.Counters(*r.Network)
	if err != nil || len(all) > len(r.Spec.Interfaces) {
		return nil
	}
	var cards []metrics.Card
	for i, counters := range all {
		cards = append(cards, metrics.Card{Name: r.Spec.Interfaces[i].Name, Counters: counters})
	}
	return cards
}
