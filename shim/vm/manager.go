// Package vm is the life of VM containers: it creates, starts, stops and
// removes them, notices when a guest ends, and finds everything again after a
// restart of the shim.
//
// It owns the order in which the parts are used and taken back (image, disk,
// cgroup, network, console, domain), the records on disk, and the tables of VM
// containers and their sandboxes. What each part does is the part's own; CRI's
// wire, and everything that isn't a VM, is package cri's.
package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// What a call can fail with, beside the errors of the parts.
var (
	// ErrNotFound says that there is no such VM container.
	ErrNotFound = errors.New("not found")
	// ErrNotVM says that a container is an ordinary one: containerd's.
	ErrNotVM = errors.New("not a VM container")
	// ErrInvalid says that what the pod asks for can't be.
	ErrInvalid = errors.New("invalid VM")
	// ErrState says that the container's state doesn't allow the call, where
	// containerd, which has no code for that, has no such call either.
	ErrState = errors.New("not in this state")
	// ErrRange says that a value is outside of what a machine can be given.
	ErrRange = errors.New("out of range")
	// ErrUnfinished says that a call ends before the work that it began, which goes on.
	ErrUnfinished = errors.New("not finished yet")
	// ErrExists says that the pod has such a container already.
	ErrExists = errors.New("already exists")
	// ErrUnsupported says that machines don't have what containers have.
	ErrUnsupported = errors.New("not supported")
)

// Options are the parts that a Manager works with, and its settings. All are needed.
type Options struct {
	Records  *record.Store
	Pods     runtimeapi.RuntimeServiceClient // containerd's
	Images   runtimeapi.ImageServiceClient   // containerd's
	Unpacker *imageunpack.Unpacker
	Disks    *disk.Disks
	Expander *expand.Expander
	Network  *netsetup.Setup
	Consoles *console.Logs
	// Terminals are the consoles' clients.
	Terminals *terminal.Terminals
	Driver    *domain.Driver
	// PodStatus is told what becomes of the pods' VMs.
	PodStatus *podstatus.Writer
	// Metrics are told of starts and ends.
	Metrics *metrics.Metrics
	Logger  *slog.Logger

	// RuntimeHandler is CRI's name of the VMs' handler.
	RuntimeHandler string
	// DiskMode is that of registry disks whose pods name none.
	DiskMode vmspec.Mode
	// GiveUp is for how long a disk is expanded that no call asks for.
	GiveUp time.Duration
	// Accelerator is what guests run on; Emulator is QEMU's path.
	Accelerator domain.Accelerator
	Emulator    string
	// DomainLogs is libvirt's folder of logs, one a domain.
	DomainLogs string
	// ConsoleDir is the folder of the consoles' sockets.
	ConsoleDir string
	// AgentDir is the folder of the guest agents' sockets.
	AgentDir string
	// DisplayDir is the folder of the displays' sockets.
	DisplayDir string
	// OverheadMemory, in bytes, is used for pods that name no overhead.
	OverheadMemory int64
	// UIDBase and UIDCount are the user ids to give out.
	UIDBase, UIDCount uint32
	// ImageFS is the folder that containerd's ImageFsInfo names.
	ImageFS string
	// ResolvConf is read for pods without DNS settings.
	ResolvConf string
}

// Manager keeps the VM containers of one node. Its methods may be called from
// any goroutine; those on one container take turns where they have to.
type Manager struct {
	Options
	events broker
	tasks  tasks
	late   late
	// largeAnswers bounds how many large answers of agents are in memory.
	largeAnswers chan struct{}

	mu        sync.RWMutex
	sandboxes map[string]record.Sandbox
	machines  map[string]*machine
	makings   map[string]*making // by the names of their containers
	names     map[string]string  // reserved container name → id

	// Set at the start and not changed any more: containers whose records are
	// broken, and where there are any the user ids that were in use then.
	aside    map[string]bool
	lostUIDs map[uint32]bool
}

// New reads the records and takes back what calls that were cut off had made.
// It needs containerd, and does not wait for libvirtd: what became of running
// machines is found out by [Manager.Run].
func New(ctx context.Context, o Options) (*Manager, error) {
	for _, dir := range []string{o.ConsoleDir, o.AgentDir, o.DisplayDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("make a folder of sockets: %w", err)
		}
	}
	m := &Manager{
		Options:   o,
		sandboxes: map[string]record.Sandbox{},
		machines:  map[string]*machine{},
		makings:   map[string]*making{},
		names:     map[string]string{},
		aside:     map[string]bool{},
		tasks:     newTasks(),

		largeAnswers: make(chan struct{}, largeAnswers),
	}
	if err := m.recover(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Run watches the machines until ctx ends. Without libvirtd it waits for it.
func (m *Manager) Run(ctx context.Context) error {
	events, unsubscribe := m.Driver.Subscribe()
	defer unsubscribe()
	m.tasks.run(func(context.Context) { m.watch(ctx, events) })
	m.tasks.run(func(context.Context) { m.collectDisks(ctx) })
	m.tasks.run(func(context.Context) { m.PodStatus.Run(ctx) })
	m.tasks.run(func(context.Context) { m.watchDisks(ctx) })
	m.tasks.run(func(context.Context) { m.watchPortals(ctx) })
	return m.Driver.Run(ctx)
}

// Close ends what goes on in the background and lets go of the consoles. The
// machines run on.
func (m *Manager) Close() error {
	m.tasks.stop()
	m.Expander.Close()
	return m.Consoles.Close()
}

// The files of a VM container, in its folder.
func (m *Manager) path(id, name string) string {
	return filepath.Join(m.Records.ContainerDir(id), name)
}

const (
	consoleFile  = "console"
	positionFile = "console.position"
	logFile      = "console.log"
)

func (m *Manager) console(id, log string) console.Console {
	return console.Console{ID: id, Raw: m.path(id, consoleFile), Position: m.path(id, positionFile), Log: log}
}

func (m *Manager) consoleSocket(id string) string {
	return filepath.Join(m.ConsoleDir, id+".sock")
}
