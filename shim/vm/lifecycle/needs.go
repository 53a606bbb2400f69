package lifecycle

import (
	"context"
	"io"
	"os"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// The parts that a VM is made of. Each interface names the type that implements
// it; errors are that type's.

// starter brings a domain from its description to a running guest.
type starter interface {
	Define(ctx context.Context, xml string) error
	// Start starts the domain paused, and returns QEMU's process id. files are
	// the descriptors of its FD groups.
	Start(ctx context.Context, uuid string, files map[string][]*os.File) (pid int, err error)
	// Restore starts the domain paused with a guest's memory, by a pipe at a path.
	Restore(ctx context.Context, uuid string, files map[string][]*os.File, memory io.Reader, pipe string) (pid int, err error)
	// KeepVariables makes the firmware of a domain that has not run yet write its variables to file.
	KeepVariables(ctx context.Context, uuid string, file *os.File) error
	// Tagged returns the devices with tags of a defined domain, and their addresses.
	Tagged(ctx context.Context, uuid string, spec vmspec.Spec) ([]vmspec.TaggedDevice, error)
	// Pin places the threads of a running domain.
	Pin(ctx context.Context, uuid string, p domain.Pins) error
	Resume(ctx context.Context, uuid string) error
}

// ender ends domains. A missing domain is no error of Destroy and Undefine.
type ender interface {
	Shutdown(ctx context.Context, uuid string) error
	// Pause stops the guest's CPUs.
	Pause(ctx context.Context, uuid string) error
	Destroy(ctx context.Context, uuid string) error
	Undefine(ctx context.Context, uuid string) error
}

// Domains starts and ends domains; [domain.Lifecycle].
type Domains interface {
	starter
	ender
}

// Observer reports on domains; [domain.Observer].
type Observer interface {
	State(ctx context.Context, uuid string) (domain.State, error)
	Domains(ctx context.Context) ([]domain.Info, error)
	MachineType(ctx context.Context, uuid string) (string, error)
	// DiskErrors returns the targets of the disks that fail, and whether they have no space left.
	DiskErrors(ctx context.Context, uuid string) (map[string]bool, error)
}

// Host reports what libvirt offers the node's VMs; [domain.Host].
type Host interface {
	Encryption(ctx context.Context, a domain.Accelerator, emulator string) (domain.Encryption, error)
}

// Processes waits for QEMU processes; [domain.Processes].
type Processes interface {
	// AwaitProcess waits for QEMU's process, which is there before Start returns.
	AwaitProcess(ctx context.Context, name string) (pid int, err error)
	// AwaitEnd waits until the process is no longer the domain's QEMU.
	AwaitEnd(ctx context.Context, name string, pid int) error
}

// Witness finds and ends the QEMUs of VMs, whatever libvirt and the records say; [witness.Node].
type Witness interface {
	Processes() ([]witness.Process, error)
	// End ends a VM's QEMU and waits for it. A VM without one is no error.
	End(ctx context.Context, id witness.Identity) error
	AwaitEnd(ctx context.Context, p witness.Process) error
}

// Memory changes and reads how much of its RAM a guest has, in bytes; [domain.Balloon].
type Memory interface {
	SetMemory(ctx context.Context, uuid string, bytes int64) error
	Memory(ctx context.Context, uuid string) (bytes int64, err error)
}

// Sizes reads and adds vCPUs and RAM of running domains; [domain.Sizes].
type Sizes interface {
	Size(ctx context.Context, uuid string) (domain.Size, error)
	// AddVCPUs and AddRAM add what is missing to so many vCPUs, or bytes.
	AddVCPUs(ctx context.Context, uuid string, count uint32) error
	AddRAM(ctx context.Context, uuid string, bytes int64) error
}

// connector waits for libvirtd.
type connector interface {
	// Connected waits until libvirtd answers, or returns why it does not.
	Connected(ctx context.Context) error
}

// Connection is the connection to libvirtd; [domain.Connection].
type Connection interface {
	connector
	// Subscribe returns what happens to domains.
	Subscribe() (events <-chan domain.Event, unsubscribe func())
	// Run keeps the connection to libvirtd until ctx ends.
	Run(ctx context.Context) error
}

// DiskMaker makes and undoes the disks of a container that does not run; [disk.Maker].
type DiskMaker interface {
	Acquire(ctx context.Context, id, namespace string, disks []vmspec.Disk, own *imageunpack.Disk) (map[string]record.Disk, error)
	TakeTime(r record.Container) bool
	Create(ctx context.Context, r record.Container, progress func(disk string, p expand.Progress)) error
	Recover(r record.Container) error
	Remove(ctx context.Context, r record.Container) error
	Release(ctx context.Context, id string, disks []vmspec.Disk) error
	RemoveNodes(id string) error
}

// DiskAttacher gives a VM its disks while it runs; [disk.Attachments].
type DiskAttacher interface {
	Attach(ctx context.Context, r record.Container) (map[string][]*os.File, error)
	Detach(ctx context.Context, r record.Container) error
	Describe(r record.Container) []domain.Disk
	// WriteDevices writes the devices with tags to the VM's config drive.
	WriteDevices(r record.Container, devices []vmspec.TaggedDevice) error
	// Restore puts back what a running VM's disks have lost.
	Restore(ctx context.Context, r record.Container) error
	diskFiles
}

// diskFiles finds the container's files that take its guest's writes, by the disks' names.
type diskFiles interface {
	Written(r record.Container) map[string]string
}

// DiskKeeper reports what running VMs' disks lose, removes what no VM needs, and keeps VMs'
// processes from addresses other than their disks' portals; [disk.Keeper].
type DiskKeeper interface {
	Watch(ctx context.Context, restore func(ctx context.Context, id string))
	WatchPortals(ctx context.Context, running func() []record.Container)
	Sweep(ctx context.Context, records func() []record.Container) error
	LimitReach(ctx context.Context, running []record.Container, keepOthers bool) error
	WatchReach(ctx context.Context)
}

// Images finds the disks in images; [imageunpack.Unpacker].
type Images interface {
	Acquire(ctx context.Context, owner, image, path string) (imageunpack.Disk, error)
	// AcquireImage holds an image for files other than a disk.
	AcquireImage(ctx context.Context, owner, image string) (imageunpack.Disk, error)
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
	Owners(ctx context.Context) ([]string, error)
	Release(ctx context.Context, owner string) error
	Sweep() error
	Removals(ctx context.Context) <-chan struct{}
}

// ImageStore is containerd's CRI for images.
type ImageStore interface {
	ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error)
}

// Expanded is the cache of expanded disks; [expand.Expander].
type Expanded interface {
	Collect(present func(image string) (bool, error)) error
	Reserve(ctx context.Context, f *os.File, needs int64) (_ context.Context, release func(), err error)
	Turns() *expand.Turns
}

// Checkpoints decompresses what checkpoints have; [unpack.Unpacker].
type Checkpoints interface {
	// Disk writes a disk's file to an empty file, in a process of a user. It calls started before the process reads a byte.
	// Extra is [checkpoint.Manifest.Extra].
	Disk(ctx context.Context, uid uint32, files checkpoint.Files, d checkpoint.Disk, extra int64, to *os.File, started func(pid int) error) error
}

// Network connects guests to their pods; [netsetup.Setup].
type Network interface {
	Plan(ctx context.Context, id string, pod netsetup.Pod) (netsetup.Plan, error)
	Taps(ctx context.Context, p netsetup.Plan) error
	OpenPlugged(ctx context.Context, p netsetup.Plan) ([]netsetup.PluggedDevice, error)
	Apply(ctx context.Context, p netsetup.Plan) error
	Connect(ctx context.Context, p netsetup.Plan) error
	Undo(ctx context.Context, p netsetup.Plan) error
	Release(ctx context.Context, one netsetup.Plan) error
	Sweep(ctx context.Context, known func(id string) bool) error
	dhcp
}

// Presence says on guests' networks which pod has the guest; [netsetup.Setup].
type Presence interface {
	// Own lets a pod whose guest has come reach the guest's networks, Announce has switches learn that the guest is here,
	// and Leave keeps the pod of a guest that has left from its networks.
	Own(ctx context.Context, p netsetup.Plan) error
	Announce(ctx context.Context, p netsetup.Plan) error
	Leave(ctx context.Context, p netsetup.Plan) error
	// Free forwards the ports to the guest that were reserved for its migration.
	Free(ctx context.Context, p netsetup.Plan) error
}

// dhcp serves a guest its addresses; [netsetup.Setup].
type dhcp interface {
	Serve(ctx context.Context, p netsetup.Plan) (pid int, err error)
	Watch(ctx context.Context, p netsetup.Plan) error
	Forget(ctx context.Context, p netsetup.Plan) (ended bool, err error)
}

// TPMs emulates TPMs; [tpm.TPMs].
type TPMs interface {
	Start(ctx context.Context, o tpm.Owner, started func(pid int) error) (pid int, err error)
	Watch(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	Sweep(ctx context.Context, known func(id string) bool) error
	Socket(id string) string
	// PID returns the process id; 0 if the TPM does not run.
	PID(id string) (int, error)
	// Keep has a TPM whose state arrived keep it in its owner's folder, once adopt has put it there.
	Keep(id string, adopt func(from string) error) error
}

// Filesystems serves folders to guests; [virtiofs.Servers].
type Filesystems interface {
	Start(ctx context.Context, o virtiofs.Owner, folders []virtiofs.Folder, started func(pid int) error) error
	Watch(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	Sweep(ctx context.Context, known func(id string) bool) error
	Socket(id string, n int) string
}

// Hooks calls the hook sidecars of VMs; [hooks.Hooks].
type Hooks interface {
	Await(ctx context.Context, r record.Container) error
	OnDefineDomain(ctx context.Context, r record.Container, xml string) (string, error)
	Shutdown(ctx context.Context, r record.Container)
}

// Consoles follows serial consoles; [console.Logs].
type Consoles interface {
	Follow(c console.Console) error
	Finish(ctx context.Context, id string) error
	Drop(id string) (lost int64, err error)
	Reopen(id string) error
}

// Groups changes the cgroups of VMs; package resources' Groups. OOMKills returns
// fs.ErrNotExist for a group that is gone.
type Groups interface {
	Create(r record.Container) error
	Add(r record.Container, pid int) error
	Set(r record.Container) error
	Remove(r record.Container) error
	// Frozen returns the command that thaws a frozen group; empty if it is not frozen.
	Frozen(r record.Container) (thaw string, err error)
	// Kill kills what is left in the group of a guest that has ended, and returns the processes' names.
	Kill(r record.Container) (killed []string, err error)
	OOMKills(r record.Container) (uint64, error)
}

// Records is what recovery reads, and where ends outlive containers; [record.Store].
type Records interface {
	PutEnded(uid string, e record.Ended) error
	Sweep() error
	MoveBroken() ([]record.Broken, error)
	Refused() ([]record.Refused, error)
	Sandboxes() ([]record.Sandbox, error)
	Containers() ([]record.Container, error)
	RemoveUnrecorded(keep func(id string) bool) error
}

// Agents follows the guests' agents; package guest's Agents.
type Agents interface {
	Handle(v *table.VM, e domain.Event)
	Absent(v *table.VM)
	RemoveSockets(id string) error
	// PowerOff asks the agent to power the guest off.
	PowerOff(ctx context.Context, v *table.VM) error
	// Run runs a command in the guest once its agent is there.
	Run(ctx context.Context, v *table.VM, c agent.Command) (agent.Result, error)
}

// Conditions reports VMs to the API server; package report's Conditions.
type Conditions interface {
	Update(v *table.VM)
	SetState(v *table.VM, s domain.State)
	Paused(v *table.VM) domain.Reason
	// SetImpaired reports what a guest that runs has lost, and what to do.
	SetImpaired(v *table.VM, message string)
	// SetDiskError reports which disk has stopped the guest.
	SetDiskError(v *table.VM, message string)
	RefuseContainer(sandbox record.Sandbox, err error)
}

// Moves are the migrations of the node's VMs; package move's Moves.
type Moves interface {
	// Check returns why a VM cannot move between nodes, nil if it can.
	Check(r record.Container) error
	// Guest returns what another node must have in common with this one for the VM's guest.
	Guest(r record.Container) (order.Guest, error)
	// Recover goes on with a VM's migration after a restart of the shim. It does not wait.
	Recover(v *table.VM)
	// MayResume reports whether the VM's guest is this node's to resume.
	MayResume(v *table.VM) bool
	// Here reports whether the VM's guest is on this node, also while it is copied.
	Here(v *table.VM) bool
	// Departure returns where the VM's guest has gone, or may have; ok is false for a guest that this node has.
	Departure(v *table.VM) (d condition.Departure, ok bool)
	// End refuses the guest that a VM waits for. If the guest came meanwhile, that is no error.
	End(ctx context.Context, v *table.VM, reason string) error
}

// Sandboxes knows the VMs' sandboxes; package sandbox's Sandboxes.
type Sandboxes interface {
	NetworkNamespace(ctx context.Context, id string) (string, error)
	Reconcile(ctx context.Context, removeVMs func(ctx context.Context, sandboxID string) error) error
	// Find returns the sandbox of a VM whose record is lost, by the cgroup and the domain's name of its QEMU.
	Find(ctx context.Context, group, domain string) (r record.Sandbox, found bool, err error)
	Restore(handler string, r record.Container) error
}

// Publisher sends CRI's container events; [event.Broker].
type Publisher interface {
	Publish(r record.Container, kind runtimeapi.ContainerEventType)
}
