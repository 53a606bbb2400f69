// Package record keeps what the shim knows on disk: which pod sandboxes are
// VMs', and each VM container with all that is needed to find it again, to
// report it, or to take it back after a crash at any point.
//
// It owns the layout below the shim's root folder and the atomic writing of
// records. It gives no record a meaning; package vm does.
package record

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Version is the version of the records that this program writes. It reads
// records up to this version and refuses newer ones.
//
// Since version 2 a network has several cards; see [netsetup.Plan]. Since version
// 3 a VM has several disks; see [Container.UnmarshalJSON].
const Version = 3

// Sandbox is a pod sandbox of the VM handler.
type Sandbox struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Handler is the runtime handler that the sandbox was asked for with;
	// containerd knows it under another.
	Handler   string                                                             `json:"handler"`
	CreatedAt time.Time                                                          `json:"createdAt"`
	Config    Message[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig] `json:"config"`
}

// State is where a VM container is in its life.
//
//	creating ──▶ created ──▶ starting ──▶ running ──▶ exited
//	    │                       │                       ▲
//	    ▼ (undone)              └──── start failed ─────┘
//
// Creating and starting are on disk only while the call is under way: a shim
// that finds them at its start takes back what the call had made.
type State string

// The states of a VM container.
const (
	Creating State = "creating"
	Created  State = "created"
	Starting State = "starting"
	Running  State = "running"
	Exited   State = "exited"
)

// Container is a VM container.
type Container struct {
	Version   int    `json:"version"`
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`

	State      State     `json:"state"`
	CreatedAt  time.Time `json:"createdAt"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode"`
	// Reason and Message are CRI's, of a container that exited.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Config is the container's, with resources that were changed before its
	// start, Sandbox the pod's, both as CRI handed them over.
	Config  Message[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig]   `json:"config"`
	Sandbox Message[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig] `json:"sandbox"`
	// LogPath is the absolute path of the CRI log, never empty.
	LogPath string `json:"logPath"`
	Image   Image  `json:"image"`

	// Spec is the machine, Disks what its disks are made of, by their names.
	Spec  vmspec.Spec     `json:"spec"`
	Disks map[string]Disk `json:"disks"`

	// Domain is libvirt's name and UUID of the machine; PID is QEMU's process
	// id, 0 where it doesn't run. QEMU runs as UID and GID.
	Domain Domain `json:"domain"`
	// Resources are those that the container was given while it ran, in place of
	// Config's; nil where they were not changed.
	Resources Message[runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources] `json:"resources,omitzero"`
	// Unclean says that a start has begun whose work is not all taken back.
	Unclean bool `json:"unclean,omitempty"`
	// Network is what stands in the pod's network namespace; nil where nothing does.
	Network *netsetup.Plan `json:"network,omitempty"`
}

// Image is what ContainerStatus tells of the container's image.
type Image struct {
	// Tag and Ref are the first repository tag and digest, where there are any.
	Tag string `json:"tag,omitempty"`
	Ref string `json:"ref,omitempty"`
	// ID is the digest of the image's config.
	ID string `json:"id"`
}

// Domain identifies a container's machine to libvirt and to the kernel.
type Domain struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	PID  int    `json:"pid,omitempty"`
}

// Message is a protobuf message that is readable JSON in a record.
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

// UnmarshalJSON implements json.Unmarshaler. Fields that this program does not
// know are dropped: they came from a newer kubelet's request.
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
