package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// Options are the parts that a Lifecycle works with, and its settings. All are needed.
type Options struct {
	Table      *table.Table
	Sandboxes  Sandboxes
	Agents     Agents
	Conditions Conditions
	Events     Publisher
	Moves      Moves
	Pods       Pods
	Tasks      *background.Tasks

	Records      Records
	Images       Images
	ImageStore   ImageStore
	Expanded     Expanded
	Checkpoints  Checkpoints
	DiskMaker    DiskMaker
	DiskAttacher DiskAttacher
	DiskKeeper   DiskKeeper
	Network      Network
	Presence     Presence
	TPMs         TPMs
	Filesystems  Filesystems
	Hooks        Hooks
	Groups       Groups
	Consoles     Consoles
	Domains      Domains
	Observer     Observer
	Processes    Processes
	Witness      Witness
	Memory       Memory
	Sizes        Sizes
	Connection   Connection
	Host         Host

	Describer Describer
	Files     *vmfile.Files
	Forks     *forks.Store
	Layout    layout.Layout
	Metrics   *metrics.Metrics
	// Tracing traces starts; nil for none.
	Tracing *tracing.Tracing
	Logger  *slog.Logger

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
	// Firmware are the folders of descriptors of UEFI firmware, as [uefi.Dirs] has them.
	Firmware []string
	// HostDevices finds and lends the node's devices.
	HostDevices hostdevice.Node
	// ResolvConf is the file with the DNS settings of pods that have none.
	ResolvConf string
	// RunFolders makes folders again that are gone from the shim's run folder.
	RunFolders func() error
}

// Lifecycle is the life of the VM containers of one node. Its methods may be
// called from any goroutine; calls on one container follow each other.
type Lifecycle struct {
	table    *table.Table
	consoles Consoles

	creator  *creator
	starts   *starts
	ends     *ends
	resizer  *resizer
	recovery *recovery
	watcher  *watcher
	disks    *diskKeeper
	images   *imageCollector
	logs     *domainLogs
	forks    *forkCollector
}

// New joins the parts. [Lifecycle.Recover] must be called next.
func New(o Options) *Lifecycle {
	pending := &pending{byName: map[string]*creation{}}
	late := &unanswered{domains: o.Domains, log: o.Logger}
	down := &teardown{
		groups: o.Groups, network: o.Network, presence: o.Presence, consoles: o.Consoles, tpms: o.TPMs, filesystems: o.Filesystems, layout: o.Layout,
		disks: o.DiskAttacher, domains: o.Domains, witness: o.Witness, agents: o.Agents, hooks: o.Hooks, hostDevices: o.HostDevices, log: o.Logger,
	}
	ends := newEnds(o, down, pending)
	dhcp := newDHCPKeeper(o)
	helpers := newHelperKeeper(o, ends)
	resizer := &resizer{table: o.Table, groups: o.Groups, memory: o.Memory, sizes: o.Sizes, libvirtd: o.Connection, threads: pinner{o.Describer, o.Domains}, log: o.Logger}
	disks := &diskKeeper{table: o.Table, disks: o.DiskKeeper, attached: o.DiskAttacher, tasks: o.Tasks, log: o.Logger}
	l := &Lifecycle{
		table: o.Table, consoles: o.Consoles, ends: ends, resizer: resizer, disks: disks,
		creator: newCreator(o, ends, pending),
		starts:  newStarts(o, down, ends, dhcp, helpers, late),
		images:  &imageCollector{images: o.Images, store: o.ImageStore, expanded: o.Expanded, log: o.Logger},
	}
	l.forks = &forkCollector{table: o.Table, forks: o.Forks, log: o.Logger}
	l.logs = &domainLogs{table: o.Table, layout: o.Layout, log: o.Logger}
	l.recovery = newRecovery(o, l.starts, ends, dhcp, helpers)
	l.watcher = newWatcher(o, ends, resizer, disks, dhcp, late, l.recovery)
	return l
}

// Recover fills the table from the records, and undoes what calls that were cut
// off had made. It needs containerd, and does not wait for libvirtd: [Lifecycle.Run]
// finds out what happened to running VMs.
func (l *Lifecycle) Recover(ctx context.Context) error { return l.recovery.run(ctx) }

// Run watches the VMs until ctx ends. While libvirtd is away it waits.
func (l *Lifecycle) Run(ctx context.Context) error {
	return l.watcher.run(ctx, l.images.run, l.disks.watch, l.disks.watchPortals, l.disks.disks.WatchReach, l.logs.run, l.forks.run)
}

// Create makes a VM container in a VM's sandbox, whose id is whole, and returns
// the container's id. ErrNotVM reports that the container is an ordinary one,
// which is containerd's. ErrUnfinished reports that the work goes on: the same
// call again finds it.
func (l *Lifecycle) Create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (string, error) {
	return l.creator.create(ctx, sandboxID, config, "")
}

// Restore is Create for a VM that goes on from the checkpoint in an archive, whose image must be the
// container's.
func (l *Lifecycle) Restore(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, archive string) (string, error) {
	return l.creator.create(ctx, sandboxID, config, archive)
}

// Unfinished returns the container that is made in a sandbox, nil if there is none.
func (l *Lifecycle) Unfinished(sandboxID string) *vminfo.Making {
	return l.creator.unfinished(sandboxID)
}

// Expanding returns the disks that are being expanded.
func (l *Lifecycle) Expanding() []metrics.Expansion { return l.creator.pending.expanding() }

// Has reports whether id, which may be shortened, is a VM container's.
func (l *Lifecycle) Has(id string) bool { return l.table.Has(id) }

// Start boots a created container.
func (l *Lifecycle) Start(ctx context.Context, id string) error { return l.starts.start(ctx, id) }

// Stop ends a guest: by the ACPI power button, and after timeout, or at once if
// timeout is 0, by power off. A guest that does not run is no error.
func (l *Lifecycle) Stop(ctx context.Context, id string, timeout time.Duration) error {
	return l.ends.stopByID(ctx, id, timeout)
}

// Remove removes a container with all its files. It powers a running guest off
// first. A missing container is no error.
func (l *Lifecycle) Remove(ctx context.Context, id string) error { return l.ends.removeByID(ctx, id) }

// StopIn powers off the VMs of a sandbox, before containerd stops the rest.
func (l *Lifecycle) StopIn(ctx context.Context, sandboxID string) error {
	var errs []error
	for _, v := range l.table.All(sandboxID) {
		errs = append(errs, l.Stop(ctx, v.Record().ID, 0))
	}
	return errors.Join(errs...)
}

// RemoveIn removes the VMs of a sandbox, before containerd removes it.
func (l *Lifecycle) RemoveIn(ctx context.Context, sandboxID string) error {
	if err := l.table.Refusals.Of(sandboxID); err != nil {
		return err
	}
	var errs []error
	for _, v := range l.table.All(sandboxID) {
		errs = append(errs, l.Remove(ctx, v.Record().ID))
	}
	return errors.Join(errs...)
}

// Update changes a container's resources. For a running guest these are the
// limits of its cgroup, how much RAM it has and, up to the VM's maximum, vCPUs. A container that has not started is translated again. For one that
// ended the change is only recorded.
func (l *Lifecycle) Update(ctx context.Context, id string, change *runtimeapi.LinuxContainerResources) error {
	return l.resizer.update(ctx, id, change)
}

// ReopenLog opens a running container's log again, after its rotation.
func (l *Lifecycle) ReopenLog(id string) error {
	v, err := l.table.Find(id)
	if err != nil {
		return err
	}
	return reopenLog(l.consoles, v)
}
