package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/bench/memory"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/node"
)

// settle is how long daemons have to release what only a start needed.
const settle = 3 * time.Second

// memory measures what a VM takes beside QEMU: the difference of the whole node with VMs and
// without, growth of the shim, containerd and libvirtd included.
func (r *rig) memory(ctx context.Context) (s report.Section, err error) {
	image, err := r.halted(ctx)
	if err != nil {
		return s, err
	}
	// What the daemons take for good with a first VM is the node's, not the VM's.
	if err := r.oneVM(ctx, image); err != nil {
		return s, err
	}
	none, err := r.weigh(ctx)
	if err != nil {
		return s, err
	}
	s.Title = "Memory beside QEMU (PSS), of the whole node with VMs less that without"
	running := 0
	for _, vms := range []int{1, r.VMs} {
		if err := r.runVMs(ctx, image, running, vms); err != nil {
			return s, err
		}
		running = vms
		some, err := r.weigh(ctx)
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, perVM(none, some, vms, vms == r.VMs)...)
	}
	rss, err := r.shimRSS(r.VMs)
	s.Rows = append(s.Rows, rss...)
	return s, err
}

func (r *rig) oneVM(ctx context.Context, image string) error {
	p, err := r.runPod(ctx, r.shim, "first", "vm")
	if err != nil {
		return err
	}
	if _, err := p.run(ctx, "guest", image); err != nil {
		return err
	}
	return p.remove(ctx)
}

// runVMs starts VMs, those from the one with number from up to the one before to.
func (r *rig) runVMs(ctx context.Context, image string, from, to int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := from; i < to; i++ {
		g.Go(func() error {
			p, err := r.runPod(ctx, r.shim, fmt.Sprintf("memory-%d", i), "vm")
			if err != nil {
				return err
			}
			_, err = p.run(ctx, "guest", image)
			return err
		})
	}
	return g.Wait()
}

// weigh sums the PSS of the node's processes, in MiB, by their names. QEMU's is not counted, nor
// what only a development node has.
func (r *rig) weigh(ctx context.Context) (map[string]float64, error) {
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	all, err := processes(r.PID())
	if err != nil {
		return nil, err
	}
	sum := map[string]float64{}
	for _, p := range all {
		if strings.HasPrefix(p.name, "qemu-") || p.name == "devnode" {
			continue
		}
		pss, err := memory.PSS(p.pid)
		if err != nil {
			return nil, err
		}
		sum[p.name] += pss
	}
	return sum, nil
}

// perVM are the rows of what was weighed: the whole, and, in detail, the processes by their share.
func perVM(none, some map[string]float64, vms int, detail bool) []report.Row {
	whole := 0.0
	share := map[string]float64{}
	for name := range some {
		share[name] = (some[name] - none[name]) / float64(vms)
		whole += share[name]
	}
	if !detail {
		return []report.Row{report.One(fmt.Sprintf("per VM, %d VM", vms), "MiB", whole, 0)}
	}
	rows := []report.Row{report.One(fmt.Sprintf("per VM, %d VMs", vms), "MiB", whole, 10)}
	names := slices.SortedFunc(maps.Keys(share), func(a, b string) int {
		return strings.Compare(fmt.Sprintf("%09.3f", share[b]), fmt.Sprintf("%09.3f", share[a]))
	})
	for _, name := range names {
		if share[name] >= 0.005 {
			rows = append(rows, report.One("of it: "+name, "MiB", share[name], 0))
		}
	}
	return rows
}

// shimRSS are the rows of the shim's resident memory, and of how much of it is not of files.
func (r *rig) shimRSS(vms int) ([]report.Row, error) {
	pid, err := r.daemon(node.Shim)
	if err != nil {
		return nil, err
	}
	rss, err := memory.Mebibytes(pid, "status", "VmRSS")
	if err != nil {
		return nil, err
	}
	anonymous, err := memory.Mebibytes(pid, "status", "RssAnon")
	return []report.Row{
		report.One(fmt.Sprintf("the shim's RSS, %d VMs", vms), "MiB", rss, 40),
		report.One("of it: anonymous", "MiB", anonymous, 0),
	}, err
}
