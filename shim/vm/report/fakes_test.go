package report_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vm/report"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// node is reports with fakes of all that they read.
type node struct {
	*report.Reports
	options    report.Options
	script     *vmtest.Script
	table      *table.Table
	groups     *vmtest.Groups
	agents     *vmtest.Agents
	writer     *vmtest.Writer
	images     *vmtest.Images
	conditions *report.Conditions
	node       *report.Node
	domains    map[string]domain.Stats
	// libvirtHangs is the number of questions that libvirtd does not answer.
	libvirtHangs atomic.Int32
}

func newNode(t *testing.T) *node {
	t.Helper()
	s := &vmtest.Script{}
	n := &node{
		script: s, table: table.New(vmtest.NewStore(s, t.TempDir()), 0, 10), groups: vmtest.NewGroups(s), agents: vmtest.NewAgents(s),
		writer: vmtest.NewWriter(), images: vmtest.NewImages(s, t.TempDir()), domains: map[string]domain.Stats{},
	}
	disks := vmtest.NewDisks(s, n.images)
	n.conditions = report.NewConditions(n.table, n.writer, n.agents, func(record.Container) string { return "" })
	l := layout.Layout{Folder: func(id string) string { return "/containers/" + id }, Displays: "/displays"}
	o := report.Options{
		Table: n.table, Conditions: n.conditions, Agents: n.agents, Groups: n.groups, Disks: disks,
		Domains:  lifecycle.Describer{Disks: disks, Layout: l, Accelerator: domain.TCG, Emulator: "/usr/bin/qemu-system-x86_64"},
		Progress: unfinished{}, Layout: l, ImageFS: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	n.options = o
	stats := report.NewStats(o)
	n.Reports = report.New(o, stats)
	n.node = report.NewNode(o, stats, report.Sources{
		Domains: func(ctx context.Context) (map[string]domain.Stats, error) {
			if n.libvirtHangs.Load() == 0 {
				return n.domains, nil
			}
			n.libvirtHangs.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		Cards:     func(netsetup.Plan) ([]netsetup.Counters, error) { return []netsetup.Counters{{}}, nil },
		Expanded:  func() expand.Usage { return expand.Usage{Bases: 2, Bytes: 4096} },
		Expanding: func() []metrics.Expansion { return []metrics.Expansion{{Disk: "disk"}} },
		Images:    n.images,
		Progress: func(v *table.VM) *domain.Job {
			if strings.HasPrefix(v.Record().ID, "a") {
				return &domain.Job{Remaining: 7}
			}
			return nil
		},
	})
	return n
}

type unfinished struct{}

func (unfinished) Unfinished(sandboxID string) *vminfo.Making {
	return &vminfo.Making{Container: "of " + sandboxID}
}

// add enters a VM whose pod the API server knows.
func (n *node) add(letter string, state record.State) *table.VM {
	r := record.Container{ID: strings.Repeat(letter, 64), SandboxID: strings.Repeat("0"+letter, 32), State: state, CreatedAt: time.Now()}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "pod-" + letter, Namespace: "ns", Uid: "uid"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
	}
	r.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Labels: map[string]string{"letter": letter}}
	r.Domain = record.Domain{Name: "ns_pod-" + letter, UUID: "5d307ca9-b3ef-428c-8861-06e72d69f22" + letter}
	r.Spec = vmspec.Spec{
		CPU: vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 256 << 20, Machine: "q35",
		Disks: []vmspec.Disk{{Name: "disk", Source: vmspec.SourceImage, Bus: vmspec.BusVirtio, Target: "vda"}}, Interfaces: []vmspec.Interface{{Name: "default", Model: "virtio"}},
	}
	if state == record.Running {
		r.StartedAt = time.Now()
		r.Network = &netsetup.Plan{NICs: []netsetup.NIC{{Card: "default", Bridge: "br0", Tap: "tap0", GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 1}}}}
	}
	n.table.RecoverSandbox(record.Sandbox{ID: r.SandboxID, Config: r.Sandbox})
	v := table.NewVM(r)
	_ = n.table.Reserve(v)
	return v
}

// change publishes a changed record.
func change(v *table.VM, do func(r *record.Container)) {
	r := v.Record()
	do(&r)
	v.Publish(r)
}
