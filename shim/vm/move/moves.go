package move

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Domains is the node's libvirtd; [domain.Driver]'s parts.
type Domains interface {
	migrate.Domains
	migrate.Files
	MigratableXML(ctx context.Context, uuid string) (string, error)
}

// Copies are the copies of guests' memory and disks; [domain.Lifecycle] and [domain.Observer].
type Copies interface {
	MigratesLive(ctx context.Context, uuid string) (bool, error)
	PrepareMirrors(ctx context.Context, uuid string, targets []string) error
	Job(ctx context.Context, uuid string) (*domain.Job, error)
	LimitDowntime(ctx context.Context, uuid string, to time.Duration) error
	// Pause pauses the guest, which libvirt knows is for the copy.
	Pause(ctx context.Context, uuid string) error
}

// Life changes what VMs are; package lifecycle's Lifecycle.
type Life interface {
	// Place moves the QEMU that waits for a guest into its cgroup and its pod's network.
	Place(ctx context.Context, v *table.VM) error
	// PassTaps passes the taps of network binding plug-ins to that QEMU, until the result is closed.
	PassTaps(ctx context.Context, v *table.VM) (io.Closer, error)
	// Admit records that the guest runs here.
	Admit(ctx context.Context, v *table.VM) error
	// Refuse ends the container of a guest that does not come.
	Refuse(ctx context.Context, v *table.VM, reason string) error
	// Yield and Reclaim unlock and lock the persistent state of a guest on its source, Reserve locks it on
	// the target, and Inherit has it kept there.
	Yield(v *table.VM) error
	Reclaim(v *table.VM) error
	Reserve(ctx context.Context, v *table.VM) error
	Inherit(v *table.VM) error
	// Announce has switches learn that the guest is here, as long as it is. It does not wait.
	Announce(v *table.VM)
	// Free gives a guest that has come the port of its pod by which it came. It does not wait.
	Free(v *table.VM)
	// Settle records the end of a guest that has ended.
	Settle(ctx context.Context, v *table.VM) error
}

// Disks opens the files of a VM's disks; [disk.Attachments].
type Disks interface {
	Attach(ctx context.Context, r record.Container) (map[string][]*os.File, error)
	Acquire(ctx context.Context, r record.Container, d vmspec.Disk) (record.Disk, error)
	Unplug(ctx context.Context, r record.Container, d vmspec.Disk) error
	// Same returns an error if this node may have another file than the guest's node.
	Same(r record.Container, d vmspec.Disk) error
	// Length returns how many bytes of its PVC a guest has as a disk, and Fit makes another PVC one for the copy. It
	// returns the length of a disk that is shorter than its device, else 0.
	Length(r record.Container, d vmspec.Disk) (int64, error)
	Fit(r record.Container, d vmspec.Disk, length int64) (int64, error)
}

// Sandboxes finds pods' network namespaces; package sandbox's Sandboxes.
type Sandboxes interface {
	NetworkNamespace(ctx context.Context, sandboxID string) (string, error)
}

// Hooks calls the hook sidecars of VMs; [hooks.Hooks].
type Hooks interface {
	// OnDefineDomain returns the XML of a VM's domain as its sidecars want it.
	OnDefineDomain(ctx context.Context, r record.Container, xml string) (string, error)
}

// Conditions reports VMs to the API server; package report's Conditions.
type Conditions interface {
	// SetUnsettled reports why a guest that is handed over is paused; empty if it is not.
	SetUnsettled(v *table.VM, message string)
}

// Options are the parts that Moves works with. All are needed.
type Options struct {
	Table     *table.Table
	Tasks     *background.Tasks
	Domains   Domains
	Copies    Copies
	Disks     Disks
	Groups    Groups
	Sandboxes Sandboxes
	// Pods finds the volumes of disks that guests have got since they run.
	Pods       attachment.Pods
	Conditions Conditions
	// Life returns the lifecycle, which is made later.
	Life func() Life
	// Describe returns a VM's domain.
	Describe func(r record.Container) domain.Description
	Hooks    Hooks
	// Listen and Dial are netsetup's, inside a pod's network namespace.
	Listen func(ctx context.Context, netns string, port uint16) (net.Listener, error)
	Dial   func(ctx context.Context, netns string, to netip.AddrPort) (net.Conn, error)
	// ListenNode and DialNode are netsetup's, from node to node: for guests with their pod's address.
	ListenNode func(ctx context.Context, address netip.Addr) (net.Listener, error)
	DialNode   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Libvirtd is the path of libvirtd's socket.
	Libvirtd    string
	Accelerator domain.Accelerator
	// CPU identifies the node's CPU; package hostcpu's Identify.
	CPU    string
	Layout layout.Layout
	Limits handover.Limits
	Logger *slog.Logger
}

// Moves are the migrations of a node's VMs.
type Moves struct {
	node    *node
	sources *sources
	targets *targets
}

// node is what both ends of migrations work with.
type node struct {
	o   Options
	vms table.PerVM[*state]
	// adopting is held while a container takes the identity of a guest, which no other
	// container of the node has.
	adopting sync.Mutex
	ports    *ports
}

// sources are the VMs that leave, targets those that come.
type (
	sources struct{ *node }
	targets struct{ *node }
)

// New returns Moves.
func New(o Options) *Moves {
	n := &node{o: o, ports: newPorts()}
	n.vms.New = func(*table.VM) *state { return &state{} }
	return &Moves{node: n, sources: &sources{n}, targets: &targets{n}}
}

// Check returns why a VM cannot move between nodes, nil if it can.
func (m *Moves) Check(r record.Container) error { return m.node.check(r) }

// Stays says why a VM stays on its node; empty if it can move.
func (m *Moves) Stays(r record.Container) string { return m.node.stays(r) }

// Guest returns what another node must have in common with this one for the VM's guest.
func (m *Moves) Guest(r record.Container) (order.Guest, error) { return m.node.guest(r) }

// End refuses the guest that a VM waits for. If the guest came meanwhile, that is no error.
func (m *Moves) End(ctx context.Context, v *table.VM, reason string) error {
	return m.targets.end(ctx, v, reason)
}

// state is what is known of a VM's migrations.
type state struct {
	orders sync.Mutex // held while an order is carried out

	mu      sync.Mutex
	current *migration // the last one; nil for a VM that never moved
	broken  error      // why the record of the last one cannot be used
}

// last returns the last migration, nil if there is none.
func (s *state) last() (*migration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.broken
}

func (s *state) set(one *migration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = one
}

func (m *node) of(v *table.VM) *state { return m.vms.Of(v) }

func (m *node) file(r record.Container) *handover.File {
	return handover.NewFile(m.o.Layout.Folder(r.ID))
}

// machine returns the VM as package migrate needs it. To has the names of the disks that are copied to other PVCs.
func (m *node) machine(r record.Container, to []string) (migrate.VM, error) {
	id, err := uuid.Parse(r.Domain.UUID)
	disks := copied(r, to)
	return migrate.VM{
		Libvirtd: m.o.Libvirtd, Name: r.Domain.Name, UUID: id, UID: r.Domain.UID, GID: r.Domain.GID,
		Sockets: migrate.Sockets{Dir: m.o.Layout.MigrationDir(r.ID)}, CopyDisks: len(disks) > 0, Disks: disks, Domains: m.o.Domains,
	}, err
}

// observe logs the steps of a migration.
func (m *node) observe(v *table.VM, migration string, also func(handover.Step)) func(handover.Step) {
	return func(s handover.Step) {
		table.Logger(m.o.Logger, v.Record()).Info("a migration's step", "migration", migration, "step", string(s))
		also(s)
	}
}

// MayResume reports whether the VM's guest is this node's to resume. It reads memory alone.
func (m *Moves) MayResume(v *table.VM) bool {
	one, broken := m.node.of(v).last()
	if broken != nil || v.Record().Incoming != "" {
		return false
	}
	return one == nil || one.ends() == nil || one.ends().Record().MayResume()
}

// Here reports whether the VM's guest is on this node, also while it is copied. It reads memory alone.
func (m *Moves) Here(v *table.VM) bool {
	one, broken := m.node.of(v).last()
	if broken != nil || v.Record().Incoming != "" {
		return false
	}
	return one == nil || one.ends() == nil || one.ends().Record().Here()
}

// Progress returns how far the copy of a VM's guest to another node is; nil if there is none, or if
// libvirt did not say. It reads memory alone.
func (m *Moves) Progress(v *table.VM) *domain.Job {
	one, _ := m.node.of(v).last()
	if one == nil {
		return nil
	}
	return one.job.Load()
}

// Departure returns where the VM's guest has gone, or may have; ok is false for a guest that this node has. It reads
// memory alone.
func (m *Moves) Departure(v *table.VM) (d condition.Departure, ok bool) {
	one, _ := m.node.of(v).last()
	if one == nil || one.from() == nil {
		return d, false
	}
	rec := one.from().Record()
	d = condition.Departure{Node: rec.Peer, Migration: rec.Migration, Unanswered: rec.State == handover.HandedOver}
	return d, d.Unanswered || rec.State == handover.Left
}

// Moving reports whether the VM's guest is moving between nodes. It reads memory alone.
func (m *Moves) Moving(v *table.VM) bool {
	one, broken := m.node.of(v).last()
	return broken != nil || one != nil && one.active()
}

// exited reports whether a VM's guest has ended.
func exited(v *table.VM) bool {
	select {
	case <-v.Exited():
		return true
	default:
		return false
	}
}

// retryPause is the time between two tries to carry a decision out.
const retryPause = 2 * time.Second
