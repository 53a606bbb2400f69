// Package record stores the shim's state on disk: which pod sandboxes belong to
// VMs, and for each VM container what the shim needs to find it again, to report
// it, or to undo it after a crash at any point.
//
// It owns the layout below the shim's
// root folder and writes records atomically. It leaves the meaning of records to package vm.
package record

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Version is the version of the records that this program reads and writes. Newer
// ones are refused with [ErrNewer]; older ones, which no release wrote, count as broken.
const Version = 3

// Sandbox is a pod sandbox of the VM handler.
type Sandbox struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Handler is the runtime handler that the client requested; containerd runs the
	// sandbox with another.
	Handler   string                                                             `json:"handler"`
	CreatedAt time.Time                                                          `json:"createdAt"`
	Config    Message[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig] `json:"config"`
	// Timeline has the phase that created the sandbox, if the shim knows it.
	Timeline []Phase `json:"timeline,omitempty"`
	// Trace is the traceparent of the call that created the sandbox; empty without tracing.
	Trace string `json:"trace,omitempty"`
}

// Phase is a part of a VM's start.
type Phase struct {
	Name  string    `json:"name"`
	Begun time.Time `json:"begun"`
	// Took is in nanoseconds.
	Took time.Duration `json:"took"`
}

// The phases of a VM's start that are no phases of StartContainer.
const (
	// PhaseSandbox is RunPodSandbox.
	PhaseSandbox = "sandbox"
	// PhaseAcquire finds and holds the images of the disks, PhaseFiles makes the VM's files.
	PhaseAcquire = "acquire"
	PhaseFiles   = "files"
	// PhaseResume is the last one of StartContainer but for a fork: the guest runs.
	PhaseResume = "resume"
	// PhaseIdentity lasts until a fork's guest has renewed its identity.
	PhaseIdentity = "identity"
	// PhaseAgent lasts from there until the guest's agent is there. It is the first that the
	// shim learns from a guest.
	PhaseAgent = "agent"
)

// State is the phase of a VM container's life.
//
//	creating ──▶ created ──▶ starting ──▶ running ──▶ exited
//	    │                       │                       ▲
//	    ▼ (undone)              └──── start failed ─────┘
//
// Creating and starting are on disk only while the call runs: a shim that finds
// them when it starts undoes what the call had created.
type State string

// The states of a VM container.
const (
	Creating State = "creating"
	Created  State = "created"
	Starting State = "starting"
	Running  State = "running"
	Exited   State = "exited"
)

// Unknown is the state of a container whose record is [Refused]. No record on disk has it.
const Unknown State = "unknown"

// Container is a VM container.
type Container struct {
	Version   int    `json:"version"`
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`

	State     State     `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// BootID names the node's run, by its kernel, in which the VM was started; empty before the start, if it is not known,
	// and in records of shims that did not write it.
	BootID     string    `json:"bootID,omitempty"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode"`
	// Reason and Message are those of CRI for a container that exited.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Config is the container's config as CRI passed it, with resources that were
	// updated before the start. Sandbox is the pod's config as CRI passed it.
	Config  Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig]   `json:"config"`
	Sandbox Message[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig] `json:"sandbox"`
	// LogPath is the absolute path of the CRI log, never empty.
	LogPath string `json:"logPath"`
	Image   Image  `json:"image"`

	// Spec is the VM. Disks are the sources of its disks by their names.
	Spec  vmspec.Spec     `json:"spec"`
	Disks map[string]Disk `json:"disks"`

	// Plugged are the disks that the VM has got since it runs. They end with its guest.
	Plugged []PluggedDisk `json:"plugged,omitempty"`
	// Cards are the network cards that the VM has got since it runs. They end with its guest.
	Cards []PluggedCard `json:"cards,omitempty"`
	// MemoryDump is the last dump of the guest's memory since it runs; nil for none.
	MemoryDump *MemoryDump `json:"memoryDump,omitempty"`
	// Backup is the last backup of the VM's disks since it runs; nil for none.
	Backup *Backup `json:"backup,omitempty"`

	// Domain identifies the VM's domain and process.
	Domain Domain `json:"domain"`
	// Resources replace Config's since an update of the running container; nil without an update.
	Resources Message[runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources] `json:"resources,omitzero"`
	// Incoming is the UID of the migration whose guest the container waits for. Its state
	// is running, as CRI has it, and nothing boots.
	Incoming string `json:"incoming,omitempty"`
	// Saving is set while the guest's memory is saved; nil otherwise.
	Saving *Saving `json:"saving,omitempty"`
	// Restored is the checkpoint that the guest goes on from; nil for one that boots.
	Restored *checkpoint.Manifest `json:"restored,omitempty"`
	// Fork is set for a guest that goes on from a checkpoint from which others can go on, too; nil for others.
	Fork *Fork `json:"fork,omitempty"`
	// Freeze is when the node ends the freeze of the guest's file systems; nil for no end.
	Freeze *Freeze `json:"freeze,omitempty"`
	// Unclean is true if a start has begun and its work is not fully undone.
	Unclean bool `json:"unclean,omitempty"`
	// Firmware is the node's UEFI firmware that the VM uses; nil for one with a BIOS.
	Firmware *uefi.Firmware `json:"firmware,omitempty"`
	// HostDevices are the node's devices that the VM has, in the order of its spec.
	HostDevices []hostdevice.Device `json:"hostDevices,omitempty"`
	// Network is what the shim created in the pod's network namespace; nil if that is nothing.
	Network *netsetup.Plan `json:"network,omitempty"`
	// Timeline has the phases of the VM's start that have ended, in the order in which they began.
	Timeline []Phase `json:"timeline,omitempty"`
	// Trace is the traceparent of the call that started the VM; empty without tracing.
	Trace string `json:"trace,omitempty"`
}

// Fork says whether a guest from a checkpoint has renewed its identity.
type Fork struct {
	// Reason is that of condition IdentityRenewed, and empty until the guest has started. Message explains it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Freeze is the end of a freeze of a guest's file systems.
type Freeze struct {
	Until time.Time `json:"until"`
	// Limit is the time that the freeze lasts at most, in nanoseconds.
	Limit time.Duration `json:"limit"`
}

// Saving is what the end of saving a guest's memory has to undo. The guest ran before. It stays if the
// guest has ended by it.
type Saving struct {
	// Partial is the path of the unfinished archive, or its name in Folder.
	Partial string `json:"partial"`
	// Folder is the path on the node of the volume with the archive; empty for none.
	Folder string `json:"folder,omitempty"`
	// Suspend says that the guest ends once its memory is saved. Renaming says that the archive may have its
	// name already, and Complete that the memory is saved: the guest never runs here again.
	Suspend  bool `json:"suspend,omitempty"`
	Renaming bool `json:"renaming,omitempty"`
	Complete bool `json:"complete,omitempty"`
}

// Image is the container's image as ContainerStatus reports it.
type Image struct {
	// Tag and Ref are the first repository tag and digest, if any.
	Tag string `json:"tag,omitempty"`
	Ref string `json:"ref,omitempty"`
	// ID is the digest of the image's config.
	ID string `json:"id"`
}

// Domain identifies a container's VM to libvirt, by Name and UUID, and to the
// kernel: QEMU runs as UID and GID. PID is QEMU's process ID, or 0 while it does not run.
type Domain struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	PID  int    `json:"pid,omitempty"`
	// Machine is the type of board that the VM has got from QEMU, such as pc-q35-7.2; empty before its start.
	Machine string `json:"machine,omitempty"`
	// TPMUID is the user and the group of the VM's TPM; 0 for a VM without one.
	TPMUID uint32 `json:"tpmUID,omitempty"`
}

// Message is a protobuf message that a record stores as readable JSON.
type Message[T any, M interface {
	*T
	proto.Message
}] struct{ Value M }

// MarshalJSON implements json.Marshaler.
func (m Message[T, M]) MarshalJSON() ([]byte, error) {
	if m.Value == nil {
		return []byte("null"), nil
	}
	return protojson.Marshal(m.Value)
}

// UnmarshalJSON implements json.Unmarshaler. It drops unknown fields, which a newer kubelet sent.
func (m *Message[T, M]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		m.Value = nil
		return nil
	}
	m.Value = M(new(T))
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m.Value)
}

var (
	_ json.Marshaler   = Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig]{}
	_ json.Unmarshaler = (*Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig])(nil)
)
