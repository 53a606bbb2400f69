package report

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// downwardEvery is how often guests get new metrics, as with KubeVirt.
const downwardEvery = 5 * time.Second

// portPause is the least time between two answers on a VM's port, as with KubeVirt.
const portPause = time.Second

// Downward gives running VMs metrics of the node and of themselves: it writes them to the disks that they
// have for them, and answers on their ports. An answer has the metrics of the last turn, so that a
// guest that asks costs the node nothing.
type Downward struct {
	node *Node
	host vhostmd.Node
	// files returns the files of a VM's disks with metrics.
	files  func(record.Container) []string
	socket func(id string) string
	of     table.PerVM[*downward]
	ports  sync.WaitGroup
	log    *slog.Logger
}

// downward is what is known of one VM.
type downward struct {
	failed bool // its disks' last turn
	// latest are the metrics of the last turn; served says that its port is answered.
	latest atomic.Pointer[[]vhostmd.Metric]
	served atomic.Bool
}

// NewDownward returns Downward.
func NewDownward(o Options, node *Node, host vhostmd.Node, files func(record.Container) []string) *Downward {
	d := &Downward{node: node, host: host, files: files, socket: o.Layout.MetricsSocket, log: o.Logger}
	d.of.New = func(*table.VM) *downward { return &downward{} }
	return d
}

// Run takes a turn every five seconds until ctx ends. Without such a disk or port it reads nothing.
func (d *Downward) Run(ctx context.Context) {
	defer d.ports.Wait()
	tick := time.NewTicker(downwardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.turn(ctx, now)
		}
	}
}

func (d *Downward) turn(ctx context.Context, now time.Time) {
	files := map[*table.VM][]string{}
	for _, v := range d.node.table.All("") {
		if r := v.Record(); r.State == record.Running {
			if of := d.files(r); len(of) > 0 || r.Spec.MetricsPort {
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
		d.write(v, of, metrics)
		if r.Spec.MetricsPort {
			d.of.Of(v).latest.Store(&metrics)
			d.serve(ctx, v)
		}
	}
}

func (d *Downward) write(v *table.VM, files []string, metrics []vhostmd.Metric) {
	var errs []error
	for _, path := range files {
		errs = append(errs, vhostmd.Write(path, metrics))
	}
	err, of := errors.Join(errs...), d.of.Of(v)
	if err != nil && !of.failed {
		table.Logger(d.log, v.Record()).Error("writing a VM's disk of metrics failed, retrying", "error", err)
	}
	of.failed = err != nil
}

// serve answers on a VM's port, unless that is done already, until the VM or ctx ends. After another end
// the next turn connects again.
func (d *Downward) serve(ctx context.Context, v *table.VM) {
	of := d.of.Of(v)
	if of.served.Swap(true) {
		return
	}
	d.ports.Go(func() {
		defer of.served.Store(false)
		conn, err := new(net.Dialer).DialContext(ctx, "unix", d.socket(v.Record().ID))
		if err == nil {
			port := vhostmd.Port{Metrics: func() []vhostmd.Metric { return *of.latest.Load() }, Pause: portPause}
			err = port.Serve(ctx, conn)
		}
		if err != nil {
			table.Logger(d.log, v.Record()).Debug("answering a guest that asks for metrics failed", "error", err)
		}
	})
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
