package report

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// downwardEvery is how often guests get new metrics, as with KubeVirt.
const downwardEvery = 5 * time.Second

// Downward writes metrics of the node and of the VM to the disks of running VMs that have
// one for them.
type Downward struct {
	node *Node
	host vhostmd.Node
	// files returns the files of a VM's disks with metrics.
	files  func(record.Container) []string
	failed table.PerVM[*bool]
	log    *slog.Logger
}

// NewDownward returns Downward.
func NewDownward(o Options, node *Node, host vhostmd.Node, files func(record.Container) []string) *Downward {
	d := &Downward{node: node, host: host, files: files, log: o.Logger}
	d.failed.New = func(*table.VM) *bool { return new(bool) }
	return d
}

// Run writes until ctx ends. Without such a disk it reads nothing.
func (d *Downward) Run(ctx context.Context) {
	tick := time.NewTicker(downwardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.write(ctx, now)
		}
	}
}

func (d *Downward) write(ctx context.Context, now time.Time) {
	files := map[*table.VM][]string{}
	for _, v := range d.node.table.All("") {
		if r := v.Record(); r.State == record.Running {
			if of := d.files(r); len(of) > 0 {
				files[v] = of
			}
		}
	}
	if len(files) == 0 {
		return
	}
	host, err := d.host.Metrics(now)
	if err != nil {
		d.log.Debug("reading the node's metrics for guests failed", "error", err)
	}
	domains := d.node.domains(ctx)
	for v, of := range files {
		r := v.Record()
		metrics := slices.Concat(host, ofGuest(domains[r.Domain.UUID]))
		var errs []error
		for _, path := range of {
			errs = append(errs, vhostmd.Write(path, metrics))
		}
		err, failed := errors.Join(errs...), d.failed.Of(v)
		if err != nil && !*failed {
			table.Logger(d.log, r).Error("writing a VM's disk of metrics failed, retrying", "error", err)
		}
		*failed = err != nil
	}
}

// ofGuest returns the VM's own metrics, with the names of vhostmd. They are missing while
// libvirtd is away.
func ofGuest(s domain.Stats) []vhostmd.Metric {
	var all []vhostmd.Metric
	if len(s.VCPUs) > 0 {
		var time uint64
		for _, cpu := range s.VCPUs {
			time += cpu.Time
		}
		all = append(all, vhostmd.Seconds(vhostmd.VM, "TotalCPUTime", float64(time)/1e9),
			vhostmd.Number(vhostmd.VM, "ResourceProcessorLimit", "", uint64(len(s.VCPUs))))
	}
	if s.Memory != nil {
		all = append(all, vhostmd.Number(vhostmd.VM, "PhysicalMemoryAllocatedToVirtualSystem", "KiB", s.Memory.Current),
			vhostmd.Number(vhostmd.VM, "ResourceMemoryLimit", "KiB", s.Memory.Maximum))
	}
	return all
}
