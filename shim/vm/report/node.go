package report

import (
	"context"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// askTime bounds one question to libvirtd or containerd for a snapshot.
const askTime = 1500 * time.Millisecond

// Sources are what a snapshot of the node asks, beside the table.
type Sources struct {
	// Domains returns the counters of libvirtd's domains, by UUID.
	Domains func(ctx context.Context) (map[string]domain.Stats, error)
	// Cards returns the counters of a VM's cards, in the order of its plan.
	Cards func(p netsetup.Plan) ([]netsetup.Counters, error)
	// Progress returns how far the copy of a VM to another node is; nil if there is none.
	Progress func(v *table.VM) *domain.Job
	// Expanded and Expanding are the disks that were expanded, and those under way.
	Expanded  func() expand.Usage
	Expanding func() []metrics.Expansion
	// Images asks containerd's CRI.
	Images imageFS
}

// imageFS asks containerd's CRI about its image store.
type imageFS interface {
	ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error)
}

// Node measures the node for Prometheus.
type Node struct {
	table  *table.Table
	agents agents
	stats  *Stats
	from   Sources
	log    *slog.Logger
}

// NewNode returns Node.
func NewNode(o Options, stats *Stats, from Sources) *Node {
	return &Node{table: o.Table, agents: o.Agents, stats: stats, from: from, log: o.Logger}
}

// Snapshot returns what is on the node now, without what can't be read.
func (n *Node) Snapshot(ctx context.Context) metrics.Snapshot {
	s := metrics.Snapshot{States: map[string]int{}}
	for _, state := range []record.State{record.Creating, record.Created, record.Starting, record.Running, record.Exited, record.Unknown} {
		s.States[string(state)] = 0
	}
	var domains map[string]domain.Stats
	var wg sync.WaitGroup
	wg.Go(func() { domains = n.domains(ctx) })
	wg.Go(func() { n.imageFS(ctx, &s) })
	wg.Wait()
	s.Libvirt = domains != nil
	images := map[string]bool{}
	for _, v := range n.table.All("") {
		r := v.Record()
		s.States[string(r.State)]++
		for _, d := range r.Disks {
			if d.Image != nil {
				images[d.Image.ImageID] = true
			}
		}
		if r.State == record.Running {
			s.VMs = append(s.VMs, n.describe(v, r, domains))
		}
	}
	s.Images = len(images)
	usage := n.from.Expanded()
	s.Expanded, s.ExpandedBytes, s.Expanding = usage.Bases, usage.Bytes, n.from.Expanding()
	return s
}

// domains asks libvirtd, and a second time if libvirtd does not answer: a QEMU
// that hangs delays the first call that meets it, and no other. It returns nil if
// libvirtd is away.
func (n *Node) domains(ctx context.Context) map[string]domain.Stats {
	for range 2 {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		all, err := n.from.Domains(ctx)
		cancel()
		if err == nil {
			return all
		}
		n.log.Debug("reading the stats of domains failed", "error", err)
	}
	return nil
}

func (n *Node) imageFS(ctx context.Context, s *metrics.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	reply, err := n.from.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	s.Containerd = err == nil
	for _, fs := range reply.GetImageFilesystems() {
		s.ImageFSUsed += fs.GetUsedBytes().GetValue()
	}
	var st syscall.Statfs_t
	if syscall.Statfs(n.stats.imageFS, &st) == nil {
		s.ImageFSSize, s.ImageFSFree = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	}
}

// describe returns what is measured of a running VM.
func (n *Node) describe(v *table.VM, r record.Container, domains map[string]domain.Stats) metrics.VM {
	pod := r.Sandbox.Value.GetMetadata()
	vm := metrics.VM{
		Namespace: pod.GetNamespace(), Name: r.InstanceName(),
		Started: r.StartedAt,
		RAM:     r.Spec.Memory,
		Overlay: n.stats.writableLayer(r).GetUsedBytes().GetValue(),
	}
	guest := n.agents.State(v)
	if guest.Presence != agent.Unknown {
		present := guest.Presence == agent.Present
		vm.Agent = &present
	}
	if guest.Presence == agent.Present {
		for _, fs := range guest.Filesystems {
			vm.Filesystems = append(vm.Filesystems, metrics.Filesystem{
				Disk: fs.Name, MountPoint: fs.MountPoint, Type: fs.Type, Used: fs.Used, Total: fs.Total,
			})
		}
	}
	if used, err := n.stats.groups.Stats(r); err == nil {
		vm.Group = &used
	}
	if d, ok := domains[r.Domain.UUID]; ok {
		vm.Domain, vm.DiskNames = &d, domain.DiskNames(r.Spec)
	}
	vm.Cards, vm.Migration = n.cards(r), n.from.Progress(v)
	return vm
}

func (n *Node) cards(r record.Container) []metrics.Card {
	var cards []metrics.Card
	for _, plan := range r.Networks() {
		all, err := n.from.Cards(plan)
		if err != nil || len(all) > len(plan.NICs) {
			continue
		}
		for i, counters := range all {
			cards = append(cards, metrics.Card{Name: plan.NICs[i].Card, Counters: counters})
		}
	}
	return cards
}
