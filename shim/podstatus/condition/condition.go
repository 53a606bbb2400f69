// Package condition names the conditions with which a node reports the state of a
// VM in its pod's status. The shim writes them; controllers and users read them.
//
// It owns the names and the format of [GuestInfo]'s message. It imports no other
// package of nodevirt, so that the node and the controller can both use it.
package condition

import (
	"encoding/json"
	"fmt"
)

// The types of conditions. A missing condition means that the state is not known:
// the node has no credential, or has not started the VM yet.
const (
	// VMReady is True while the guest runs. If it is False the reason says why, and
	// the message says what failed and what to do.
	VMReady = "nodevirt.io/VMReady"
	// Paused is True while the VM exists and its guest does not run.
	Paused = "nodevirt.io/Paused"
	// AgentConnected is True while the guest agent has opened its port.
	AgentConnected = "nodevirt.io/AgentConnected"
	// GuestInfo is True if its message is a [Guest] as JSON, as reported by the guest agent.
	GuestInfo = "nodevirt.io/GuestInfo"
	// AccessCredentialsSynchronized is True while the guest has the keys and passwords of
	// the VM's Secrets, as far as its agent sets them. Other VMs don't have the condition.
	AccessCredentialsSynchronized = "nodevirt.io/AccessCredentialsSynchronized" //nolint:gosec // a name, not a secret
	// LiveMigratable is True if the VM can be migrated to another node while it runs. If it
	// is False, the message says why not.
	LiveMigratable = "nodevirt.io/LiveMigratable"
	// VSOCK is True while a VM with a VSOCK exists. The message is its CID, a number. Other VMs
	// don't have the condition.
	VSOCK = "nodevirt.io/VSOCK"
	// MachineType is True since the VM's start. The message is the type of board that the VM has, such as
	// pc-q35-7.2, whichever alias of it the spec has.
	MachineType = "nodevirt.io/MachineType"
	// IdentityRenewed is True if a guest has renewed the identity that it had in its checkpoint, from which others
	// can go on, too. If it is False, the message says why not. Other VMs don't have the condition.
	IdentityRenewed = "nodevirt.io/IdentityRenewed"
)

// AnnotationReleased is on a pod that the controller has released without a word of its node, since an administrator
// declared the node lost: the guest may have been replaced.
const AnnotationReleased = "nodevirt.io/released"

// Reasons of VMReady. After the VM's end the reason is that of its container, such
// as Completed, Error or OOMKilled.
const (
	ReasonRunning = "GuestRunning"
	// ReasonDisputed: the guest runs, and libvirt or the node's record has lost it. The message says which, and how
	// to end the guest.
	ReasonDisputed = "StateDisputed"
	// ReasonCreateFailed: the node refused the container, or failed to create it.
	// The kubelet retries.
	ReasonCreateFailed = "CreateFailed"
	// ReasonUnfinished: the node still makes the VM's disks, and the kubelet asks again.
	ReasonUnfinished = "CreateUnfinished"
	// ReasonNoVM: no container of the pod is a VM, since no image has a disk. They run as ordinary containers.
	ReasonNoVM = "NoVM"
	// ReasonCompleted: the guest has powered off.
	ReasonCompleted = "Completed"
	// ReasonError: the guest was ended, or ended by an error.
	ReasonError = "Error"
	// ReasonGuestPanicked: the guest's kernel panicked, and said so. It is the name of KubeVirt's event.
	ReasonGuestPanicked = "GuestPanicked"
	// ReasonOOMKilled: the guest needed more memory than its limit.
	ReasonOOMKilled = "OOMKilled"
	// ReasonNodeShutdown: the guest powered off, or was ended, because its node shut down.
	ReasonNodeShutdown = "NodeShutdown"
	// ReasonMigrated: the guest runs on another node.
	ReasonMigrated = "Migrated"
	// ReasonHandedOver: the guest was handed over to another node, which had not answered when this one ended its copy.
	ReasonHandedOver = "HandedOver"
	// ReasonSuspended: the guest's memory is on a PVC, from which another pod goes on.
	ReasonSuspended = "Suspended"
	// ReasonMigrationRefused: the container waited for a guest that did not come.
	ReasonMigrationRefused = "MigrationRefused"
	// ReasonStartFailed: the VM could not be started.
	ReasonStartFailed = "StartFailed"
)

// Reasons of Paused, also of VMReady, which is False while a VM is paused.
const (
	ReasonNotPaused       = "NotPaused"
	ReasonPausedByUser    = "PausedByUser"    // KubeVirt's name
	ReasonPausedIOError   = "PausedIOError"   // KubeVirt's name: an I/O error on a disk
	ReasonPausedMigration = "PausedMigration" // the guest is being migrated
	ReasonPausedOther     = "PausedOther"
)

// Reasons of AgentConnected and GuestInfo.
const (
	ReasonAgentConnected    = "AgentConnected"
	ReasonAgentDisconnected = "AgentDisconnected"
	ReasonAgentReported     = "AgentReported"
)

// Reasons of AccessCredentialsSynchronized, beside ReasonAgentDisconnected.
const (
	ReasonSynchronized     = "Synchronized"
	ReasonSyncFailed       = "SyncFailed"
	ReasonUnsupportedAgent = "UnsupportedAgent" // the agent does not support a needed command
)

// Reasons of VSOCK.
const (
	ReasonCIDAssigned = "CIDAssigned"
	ReasonCIDReleased = "CIDReleased"
)

// ReasonResolved is the reason of MachineType.
const ReasonResolved = "Resolved"

// Reasons of IdentityRenewed, beside ReasonUnsupportedAgent.
const (
	ReasonRenewed       = "Renewed"
	ReasonNoAgent       = "NoAgent"       // the guest had none when it was saved
	ReasonNoHook        = "NoHook"        // the guest's agent could not run it
	ReasonStartedPaused = "StartedPaused" // the guest runs nothing yet
)

// Reasons of LiveMigratable.
const (
	ReasonMigratable           = "Migratable"
	ReasonMigrationUnsupported = "MigrationUnsupported" // of this VM, by this version
)

// Guest is what a guest agent reports. All of it is the guest's own text, and not trusted.
type Guest struct {
	// AgentVersion is qemu-guest-agent's.
	AgentVersion string      `json:"agentVersion,omitempty"`
	Hostname     string      `json:"hostname,omitempty"`
	OS           *OS         `json:"os,omitempty"`
	Interfaces   []Interface `json:"interfaces,omitempty"`
	// Refused are commands that guests should allow and this agent does not.
	Refused []string `json:"refused,omitempty"`
	// Frozen says that the guest's file systems accept no writes, for a backup.
	Frozen bool `json:"frozen,omitempty"`
}

// OS is an operating system, with values of os-release(5) and uname(2).
type OS struct {
	ID         string `json:"id,omitempty"`
	PrettyName string `json:"prettyName,omitempty"`
	VersionID  string `json:"versionID,omitempty"`
	// Kernel is uname's release, Machine its hardware name.
	Kernel  string `json:"kernel,omitempty"`
	Machine string `json:"machine,omitempty"`
}

// Interface is a network interface of the VM as the guest reports it. Interfaces
// that the guest created itself are omitted.
type Interface struct {
	// Card is the name of the VM's network card with this MAC address: the node knows it, and not the guest. A node of an
	// earlier version leaves it empty.
	Card string `json:"card,omitempty"`
	Name string `json:"name,omitempty"`
	MAC  string `json:"mac,omitempty"`
	// IPs have no prefix length.
	IPs []string `json:"ips,omitempty"`
}

// Parse decodes the message of GuestInfo. The guest controls its contents, which
// must not be trusted.
func Parse(message string) (Guest, error) {
	var g Guest
	if err := json.Unmarshal([]byte(message), &g); err != nil {
		return Guest{}, fmt.Errorf("read the message of %s: %w", GuestInfo, err)
	}
	return g, nil
}
