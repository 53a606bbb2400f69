package lifecycle_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// node is a Lifecycle with fakes of all its parts.
type node struct {
	*lifecycle.Lifecycle

	script      *vmtest.Script
	store       *vmtest.Store
	images      *vmtest.Images
	disks       *vmtest.Disks
	network     *vmtest.Network
	tpms        *vmtest.TPMs
	filesystems *vmtest.Filesystems
	hooks       *vmtest.Hooks
	groups      *vmtest.Groups
	consoles    *vmtest.Consoles
	libvirt     *vmtest.Libvirt
	agents      *vmtest.Agents
	conditions  *vmtest.Conditions
	events      *vmtest.Publications
	sandboxes   *vmtest.Sandboxes
	moves       *vmtest.Moves
	podLookup   *vmtest.PodLookup

	table  *table.Table
	tasks  *background.Tasks
	layout layout.Layout
	mode   vmspec.Mode
	dir    string
	booted time.Time // when the node booted
	bootID string    // names the node's run; empty if that is not known
	// tracing is nil for none.
	tracing *tracing.Tracing
	log     *lines
	stop    func() // ends Run
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// onNode runs a test on a new node, with a fake clock.
func onNode(t *testing.T, do func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(t, newNode(t)) })
}

func newNode(t *testing.T) *node {
	t.Helper()
	s, dir := &vmtest.Script{}, t.TempDir()
	n := &node{
		script: s, dir: dir, store: vmtest.NewStore(s, filepath.Join(dir, "containers")), images: vmtest.NewImages(s, dir),
		network: vmtest.NewNetwork(s), tpms: vmtest.NewTPMs(s), filesystems: vmtest.NewFilesystems(s), hooks: vmtest.NewHooks(s), groups: vmtest.NewGroups(s), consoles: vmtest.NewConsoles(s), libvirt: vmtest.NewLibvirt(s),
		agents: vmtest.NewAgents(s), conditions: vmtest.NewConditions(), podLookup: vmtest.NewPodLookup(s), events: &vmtest.Publications{}, log: &lines{},
		stop: func() {}, mode: vmspec.ModeFile,
	}
	n.disks = vmtest.NewDisks(s, n.images)
	n.layout = layout.Layout{
		Folder: n.store.ContainerDir, DomainLogs: dir,
		Consoles: filepath.Join(dir, "consoles"), Agents: filepath.Join(dir, "agents"), Displays: filepath.Join(dir, "displays"),
		Migrations: filepath.Join(dir, "migrations"),
	}
	if err := n.layout.Make(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.join()
	t.Cleanup(func() {
		n.end()
		if t.Failed() {
			t.Logf("log:\n%s\ncalls: %v", n.log.text.String(), s.Calls())
		}
	})
	return n
}

// join makes a Lifecycle on the node, as a shim that starts does.
func (n *node) join() {
	log := slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.table = table.New(n.store, uint32(os.Getuid()), 3)
	n.tasks = background.New()
	n.sandboxes, n.moves = vmtest.NewSandboxes(n.script, n.table), vmtest.NewMoves(n.script)
	n.moves.Refuse = func(ctx context.Context, v *table.VM, reason string) error { return n.Refuse(ctx, v, reason) }
	files := vmfile.New(n.images, n.layout.Folder)
	n.Lifecycle = lifecycle.New(lifecycle.Options{
		NodeBooted: func() time.Time { return n.booted }, NodeBootID: func() string { return n.bootID },
		Table: n.table, Sandboxes: n.sandboxes, Agents: n.agents, Conditions: n.conditions, Events: n.events, Moves: n.moves, Pods: n.podLookup, Tasks: n.tasks,
		Records: n.store, Images: n.images, ImageStore: n.images, Expanded: n.images, Checkpoints: vmtest.NewCheckpoints(n.script),
		DiskMaker: n.disks, DiskAttacher: n.disks, DiskKeeper: n.disks,
		Network: n.network, Presence: n.network, TPMs: n.tpms, Filesystems: n.filesystems, Hooks: n.hooks, Firmware: []string{filepath.Join(n.dir, "firmware")}, HostDevices: hostdevice.Node{Root: n.dir}, Groups: n.groups, Consoles: n.consoles,
		Domains: n.libvirt.Lifecycle, Observer: n.libvirt.Observer, Processes: n.libvirt.Processes, Witness: n.libvirt.Witness, Memory: n.libvirt.Balloon, Sizes: n.libvirt.Sizes, Connection: n.libvirt.Connection, Host: n.libvirt.Host,
		Files:     files,
		Forks:     forks.New(filepath.Join(n.dir, "checkpoints"), 1<<30),
		Describer: lifecycle.Describer{Disks: n.disks, Files: files, TPMs: n.tpms, Filesystems: n.filesystems, Layout: n.layout, Accelerator: domain.TCG, Emulator: "/usr/bin/qemu-system-x86_64", NodeCPUs: []hostcpu.CPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2}}},
		Layout:    n.layout, Metrics: metrics.New(), Tracing: n.tracing, Logger: log,
		RuntimeHandler: "vm", DiskMode: n.mode, CreateTimeout: 5 * time.Minute, ResolvConf: filepath.Join(n.dir, "resolv.conf"),
		RunFolders: n.layout.Make,
	})
}

// run has the node watch its VMs.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

// end ends the node's shim, and leaves its guests and records.
func (n *node) end() {
	n.stop()
	n.tasks.Stop()
}

// restart starts a new shim.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.end()
	n.join()
	if err := n.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// addPod makes the sandbox of a VM's pod, and returns its id.
func (n *node) addPod(t *testing.T, name string, annotations map[string]string) string {
	t.Helper()
	r := record.Sandbox{ID: fmt.Sprintf("%064x", name), Handler: "vm", CreatedAt: time.Now()}
	r.Config.Value = &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Annotations: annotations, Hostname: name,
	}
	if err := n.table.AddSandbox(r); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// request is what the kubelet asks for.
func request(attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm", Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: "1", UserSpecifiedImage: "example.com/vm:1"},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20},
		},
	}
}

// created makes a pod with a VM container.
func (n *node) created(t *testing.T, pod string) (id string) {
	t.Helper()
	id, err := n.Create(t.Context(), n.addPod(t, pod, nil), request(0))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// started makes a pod whose VM runs.
func (n *node) started(t *testing.T, pod string) (id string) {
	t.Helper()
	id = n.created(t, pod)
	if err := n.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.events.Take()
	return id
}

// rec returns a container's record, which must be the same in memory and on disk.
func (n *node) rec(t *testing.T, id string) record.Container {
	t.Helper()
	v, err := n.table.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	r := v.Record()
	if saved, ok := n.store.Container(id); !ok || saved.State != r.State || saved.Unclean != r.Unclean {
		t.Errorf("on disk it is %s, unclean %t; in memory %s, %t", saved.State, saved.Unclean, r.State, r.Unclean)
	}
	return r
}

// wantEnd checks how a container ended.
func (n *node) wantEnd(t *testing.T, id string, code int32, reason, message string) record.Container {
	t.Helper()
	r := n.rec(t, id)
	if r.State != record.Exited || r.ExitCode != code || r.Reason != reason || !strings.Contains(r.Message, message) || r.FinishedAt.IsZero() {
		t.Errorf("it is %s with %d, %s, %q; want %d, %s, %q", r.State, r.ExitCode, r.Reason, r.Message, code, reason, message)
	}
	if got := n.conditions.Updated(id); got != record.Exited {
		t.Errorf("the last condition is of a VM that is %q", got)
	}
	return r
}

// running lists what is left of guests that run.
func (n *node) running() []string {
	var all []string
	for _, left := range []func() []string{n.libvirt.Left, n.network.Left, n.tpms.Left, n.filesystems.Left, n.groups.Left, n.consoles.Left} {
		all = append(all, left()...)
	}
	for _, left := range n.disks.Left() {
		if strings.HasPrefix(left, "attached") {
			all = append(all, left)
		}
	}
	return all
}

// wantNothing checks that nothing is left of any VM.
func (n *node) wantNothing(t *testing.T) {
	t.Helper()
	all := slices.Concat(n.running(), n.disks.Left(), n.images.Left())
	for _, v := range n.table.All("") {
		all = append(all, "container "+v.Record().ID)
	}
	saved, err := n.store.Containers()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range saved {
		all = append(all, "record "+r.ID)
	}
	if len(all) > 0 {
		t.Errorf("left: %v", all)
	}
}

// must fails the test for an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks that an error has some words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v; want %q", err, w)
		}
	}
}
