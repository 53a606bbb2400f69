// Package vm joins the parts of the VM containers of one node.
//
// It owns the wiring alone. Each part is a package below it, and can be read
// alone:
//
//	table      VMs and sandboxes in memory, as their records say
//	sandbox    pod sandboxes: intents, containerd's list
//	lifecycle  create, start, end, remove, resize, recover
//	move       live migrations
//	hotplug    disks and network cards that running VMs get
//	memorydump dumps of guests' memory
//	backup     backups of running VMs' disks
//	save       checkpoints of running VMs
//	guest      the ways into a running guest: agent, exec, console, display
//	report     statuses, stats, metrics, pod conditions
//	resources  CRI's resources in terms of cgroups and guest memory
//	layout     names of files and sockets
//	event      CRI's container events
//	background tasks beside the calls
//	vmerrors   kinds of failure
//
// Package lifecycle uses the others; guest, report and sandbox use table. No part
// uses lifecycle.
package vm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/nodelabels"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/backup"
	"github.com/nodevirt/nodevirt/shim/vm/disowned"
	"github.com/nodevirt/nodevirt/shim/vm/event"
	"github.com/nodevirt/nodevirt/shim/vm/guest"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vm/memorydump"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/report"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/sandbox"
	"github.com/nodevirt/nodevirt/shim/vm/save"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
	"github.com/nodevirt/nodevirt/tracing"
)

// Options are what the VM containers are made with, and settings. All are needed.
type Options struct {
	Records     *record.Store
	Pods        runtimeapi.RuntimeServiceClient // containerd's
	Unfinished  sandbox.Unfinished              // containerd's
	Images      runtimeapi.ImageServiceClient   // containerd's
	Unpacker    *imageunpack.Unpacker
	Disks       *disk.Disks
	Expander    *expand.Expander
	Checkpoints lifecycle.Checkpoints
	Network     *netsetup.Setup
	TPMs        *tpm.TPMs
	Filesystems *virtiofs.Servers
	Hooks       *hooks.Hooks
	Consoles    *console.Logs
	Terminals   *terminal.Terminals
	Driver      *domain.Driver
	Forks       *forks.Store
	PodStatus   *podstatus.Writer
	PodLookup   *podstatus.Lookup
	Problems    *nodeproblems.Problems
	Node        *nodelabels.Conditions
	Metrics     *metrics.Metrics
	Tracing     *tracing.Tracing // nil for none
	Logger      *slog.Logger
	// NodeStops reports whether the node shuts down; nil for a node that never does.
	NodeStops func(context.Context) bool
	// NodeBooted returns when the node booted; nil or zero if that is not known.
	NodeBooted func() time.Time
	// NodeBootID names the node's run since it booted; nil or empty if that is not known.
	NodeBootID func() string

	// RuntimeHandler is CRI's name of the VMs' handler.
	RuntimeHandler string
	// DiskMode is the mode of registry disks whose pods set none.
	DiskMode vmspec.Mode
	// CreateTimeout is how long the shim goes on expanding a disk that no call asks for.
	CreateTimeout time.Duration
	// NodeCPUs are the node's processors, NodeCPU their model.
	NodeCPUs []hostcpu.CPU
	NodeCPU  string
	// Accelerator is what guests run on; Emulator is QEMU's path.
	Accelerator domain.Accelerator
	Emulator    string
	// ForeignEmulators are the paths of QEMU for guests of other architectures.
	ForeignEmulators map[string]string
	// DomainLogs is libvirt's folder of logs, which has one file for each domain.
	DomainLogs string
	// ConsoleDir, AgentDir and DisplayDir are the folders of the sockets of serial
	// consoles, guest agents and displays.
	ConsoleDir, AgentDir, DisplayDir string
	// MigrationDir is the folder of the sockets of migrations, Libvirtd the path of
	// libvirtd's socket.
	MigrationDir, Libvirtd string
	// OverheadMemory, in bytes, is used for pods that name no overhead.
	OverheadMemory int64
	// UIDBase and UIDCount are the range of user ids for VMs.
	UIDBase, UIDCount uint32
	// ImageFS is the folder that containerd's ImageFsInfo names.
	ImageFS string
	// ResolvConf is read for pods without DNS settings.
	ResolvConf string
	// RunFolders makes the folders of the other parts again that are gone from the run folder.
	RunFolders func() error
}

// VMs are the VM containers of one node: what CRI, streams and metrics call.
type VMs struct {
	Sandboxes *sandbox.Sandboxes
	Lifecycle *lifecycle.Lifecycle
	Guests    *guest.Guests
	Reports   *report.Reports
	Node      *report.Node
	Events    *event.Broker
	Saves     *save.Saves

	hotplugs  *hotplug.Hotplugs
	dumps     *memorydump.Dumps
	backups   *backup.Backups
	downward  *report.Downward
	podStatus *podstatus.Writer
	survey    *disowned.Survey
	tasks     *background.Tasks
	expander  *expand.Expander
	consoles  *console.Logs
}

// New joins the parts, reads the records, and undoes what calls that were cut off
// had made. It needs containerd, and does not wait for libvirtd. The caller closes
// the result.
func New(ctx context.Context, o Options) (*VMs, error) {
	paths := layout.Layout{
		Folder: o.Records.ContainerDir, DomainLogs: o.DomainLogs,
		Consoles: o.ConsoleDir, Agents: o.AgentDir, Displays: o.DisplayDir, Migrations: o.MigrationDir,
	}
	if err := paths.Make(); err != nil {
		return nil, err
	}
	v := join(o, paths)
	if err := v.Lifecycle.Recover(ctx); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.Guests.Recover()
	v.hotplugs.Recover()
	v.dumps.Recover()
	v.backups.Recover()
	v.Saves.Recover()
	return v, nil
}

func join(o Options, paths layout.Layout) *VMs {
	vms := table.New(o.Records, o.UIDBase, o.UIDCount)
	processes := witness.Node{FirstUID: o.UIDBase, UIDs: o.UIDCount}
	vms.UsersInUse = processes.Users
	tasks := background.New()
	groups := resources.Groups{Overhead: o.OverheadMemory}
	files := vmfile.New(o.Unpacker, paths.Folder)
	describer := lifecycle.Describer{Disks: o.Disks.Attachments, Files: files, TPMs: o.TPMs, Filesystems: o.Filesystems, Layout: paths, Accelerator: o.Accelerator, Emulator: o.Emulator, Foreign: o.ForeignEmulators, NodeCPUs: o.NodeCPUs}
	var conditions *report.Conditions
	agents := guest.NewAgents(paths, libvirtd{o.Driver.Lifecycle, o.Driver.Observer}, tasks, o.Logger, func(v *table.VM) { conditions.Update(v) })
	var moves *move.Moves
	conditions = report.NewConditions(vms, o.PodStatus, agents, func(r record.Container) string { return moves.Stays(r) })
	sandboxes := sandbox.New(sandbox.Options{
		Table: vms, Intents: o.Records, Pods: o.Pods, Unfinished: o.Unfinished, Conditions: conditions, Tasks: tasks, Silence: o.Network.Silence, Ready: o.Network.Ready, Problems: o.Problems, Logger: o.Logger,
	})
	events := &event.Broker{}
	var life *lifecycle.Lifecycle
	both := libvirtd{o.Driver.Lifecycle, o.Driver.Observer}
	moves = move.New(move.Options{
		Table: vms, Tasks: tasks, Disks: o.Disks.Attachments, Groups: groups, Sandboxes: sandboxes, Pods: o.Pods, Conditions: conditions,
		Domains: both, Copies: both, Life: func() move.Life { return life }, Describe: describer.Describe, Hooks: o.Hooks,
		Listen: netsetup.Listen, Dial: netsetup.DialFrom, ListenNode: netsetup.ListenNode, DialNode: netsetup.DialNode, Libvirtd: o.Libvirtd, Accelerator: o.Accelerator, CPU: o.NodeCPU, Layout: paths,
		Limits: handover.DefaultLimits(), Logger: o.Logger,
	})
	life = lifecycle.New(lifecycle.Options{
		Table: vms, Sandboxes: sandboxes, Agents: agents, Conditions: conditions, Events: events, Moves: moves, Pods: o.PodLookup, Tasks: tasks,
		Records: o.Records, Images: o.Unpacker, ImageStore: o.Images, Expanded: o.Expander, Checkpoints: o.Checkpoints,
		DiskMaker: o.Disks.Maker, DiskAttacher: o.Disks.Attachments, DiskKeeper: o.Disks.Keeper,
		Network: o.Network, Presence: o.Network, TPMs: o.TPMs, Filesystems: o.Filesystems, Hooks: o.Hooks, Firmware: uefi.Dirs(), HostDevices: hostdevice.Node{Root: "/"}, Groups: groups, Consoles: o.Consoles,
		Domains: o.Driver.Lifecycle, Observer: o.Driver.Observer, Processes: o.Driver.Processes, Witness: processes,
		Memory: o.Driver.Balloon, Sizes: o.Driver.Sizes, Connection: o.Driver.Connection, Host: o.Driver.Host,
		Describer: describer, Files: files, Forks: o.Forks, Layout: paths, Metrics: o.Metrics, Tracing: o.Tracing, Logger: o.Logger,
		NodeStops: o.NodeStops, NodeBooted: o.NodeBooted, NodeBootID: o.NodeBootID, RuntimeHandler: o.RuntimeHandler, DiskMode: o.DiskMode, CreateTimeout: o.CreateTimeout, ResolvConf: o.ResolvConf,
		RunFolders: func() error { return errors.Join(o.RunFolders(), paths.Make()) },
	})
	hotplugs := hotplug.New(hotplug.Options{
		Table: vms, Tasks: tasks, Domains: o.Driver.Hotplug, Cards: o.Driver.Hotplug, Networks: life.Cards(), Volumes: o.Disks.Attachments, Moves: moves, Pods: o.Pods, Conditions: conditions, Agents: agents, Logger: o.Logger,
	})
	dumps := memorydump.New(memorydump.Options{
		Table: vms, Tasks: tasks, Domains: o.Driver.Dumps, Files: disk.Dumps{}, Moves: moves, Pods: o.Pods, Conditions: conditions, Layout: paths, Logger: o.Logger,
	})
	freezes := guest.NewFreezes(vms, agents)
	backups := backup.New(backup.Options{
		Table: vms, Tasks: tasks, Domains: o.Driver.Backups, Files: disk.Backups{}, Volumes: o.Disks.Attachments, Freezes: freezes, Moves: moves, Pods: o.Pods, Conditions: conditions, Logger: o.Logger,
	})
	reporting := report.Options{
		Table: vms, Conditions: conditions, Agents: agents, Groups: groups, Disks: o.Disks.Attachments, Domains: describer,
		Progress: life, Layout: paths, ImageFS: o.ImageFS, Logger: o.Logger,
	}
	stats := report.NewStats(reporting)
	node := report.NewNode(reporting, stats, report.Sources{
		Domains: o.Driver.Observer.Stats, Cards: o.Network.Counters, Expanded: o.Expander.Usage,
		Expanding: life.Expanding, Images: o.Images, Progress: moves.Progress,
	})
	saves := save.New(save.Options{
		Table: vms, Tasks: tasks, Domains: both, Disks: o.Disks.Attachments, Images: o.Unpacker, Moves: moves, Agents: agents, Files: disk.Archives{}, Pods: o.Pods,
		Describe: describer.Describe, Accelerator: o.Accelerator, Logger: o.Logger,
	})
	survey := disowned.New(disowned.Options{
		Table: vms, Pods: o.PodLookup, Seen: o.PodStatus.Seen, Ended: o.Records.EndedOf, Departed: conditions.Departed, Node: o.Node.Set, Count: o.Metrics.GuestsWithoutPods, Logger: o.Logger,
	})
	name, _ := os.Hostname() // the kubelet's default name of the node
	host := vhostmd.Node{Name: strings.ToLower(name), Proc: "/proc", Sys: "/sys"}
	return &VMs{
		Sandboxes: sandboxes, Lifecycle: life, Events: events, Saves: saves,
		Guests: guest.New(guest.Options{
			Table: vms, Agents: agents, Layout: paths, Power: o.Driver.Lifecycle, Screens: o.Driver.Observer, Pauses: conditions, Moves: moves, Hotplugs: hotplugs, Dumps: dumps, Backups: backups, Freezes: freezes, Saves: saves, Survey: survey, Terminals: o.Terminals,
			Namespaces: sandboxes, Logger: o.Logger,
		}),
		Reports:   report.New(reporting, stats),
		Node:      node,
		hotplugs:  hotplugs,
		dumps:     dumps,
		backups:   backups,
		downward:  report.NewDownward(reporting, node, host, o.Disks.Attachments.MetricsFiles),
		podStatus: o.PodStatus, survey: survey, tasks: tasks, expander: o.Expander, consoles: o.Consoles,
	}
}

// libvirtd are the parts of the driver that migrations and checkpoints need.
type libvirtd struct {
	*domain.Lifecycle
	*domain.Observer
}

// Run watches the VMs until ctx ends. While libvirtd is away it waits.
func (v *VMs) Run(ctx context.Context) error {
	v.tasks.Run(func(context.Context) { v.podStatus.Run(ctx) })
	v.tasks.Run(func(context.Context) { v.survey.Run(ctx) })
	v.tasks.Run(func(context.Context) { v.downward.Run(ctx) })
	return v.Lifecycle.Run(ctx)
}

// Close ends the background tasks and closes the consoles. The guests run on.
func (v *VMs) Close() error {
	v.tasks.Stop()
	v.expander.Close()
	return v.consoles.Close()
}
