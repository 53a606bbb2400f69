// Package condition names the conditions by which a node tells of a VM on its
// pod's status: the shim writes them, controllers and people read them.
//
// It owns names and the form of [GuestInfo]'s message, and nothing else. It
// imports nothing of ours, so that it can be used on both ends.
package condition

import (
	"encoding/json"
	"fmt"
)

// The types of conditions. One that a pod does not have is not known: the node
// has no credential, or did not come so far.
const (
	// VMReady is True while the guest runs. Where it is False the reason says
	// why, and the message what failed and the way out.
	VMReady = "nodevirt.io/VMReady"
	// Paused is True while the machine is there and its guest's code does not run.
	Paused = "nodevirt.io/Paused"
	// AgentConnected is True while the guest's agent has its port open.
	AgentConnected = "nodevirt.io/AgentConnected"
	// GuestInfo is True where its message is a [Guest], as JSON: the guest's own
	// words, of its agent.
	GuestInfo = "nodevirt.io/GuestInfo"
	// LiveMigratable is False with a reason where the VM can't move to another
	// node while it runs.
	LiveMigratable = "nodevirt.io/LiveMigratable"
)

// Reasons of VMReady. Of a machine that ended it is its container's, such as
// Completed, Error or OOMKilled.
const (
	ReasonRunning = "GuestRunning"
	// ReasonCreateFailed: the node refused the container, or could not make it;
	// the kubelet tries again.
	ReasonCreateFailed = "CreateFailed"
	// ReasonStartFailed: the machine could not be started.
	ReasonStartFailed = "StartFailed"
)

// Reasons of Paused, also of VMReady, which is False while a VM is paused.
const (
	ReasonNotPaused       = "NotPaused"
	ReasonPausedByUser    = "PausedByUser"    // KubeVirt's word
	ReasonPausedIOError   = "PausedIOError"   // KubeVirt's word: a disk can't be written
	ReasonPausedMigration = "PausedMigration" // the guest moves
	ReasonPausedOther     = "PausedOther"
)

// Reasons of AgentConnected and GuestInfo.
const (
	ReasonAgentConnected    = "AgentConnected"
	ReasonAgentDisconnected = "AgentDisconnected"
	ReasonAgentTold         = "AgentTold"
)

// ReasonMigrationUnsupported is of LiveMigratable: this nodevirt moves no VM.
const ReasonMigrationUnsupported = "MigrationUnsupported"

// Guest is what a guest's agent tells. All of it is the guest's own text.
type Guest struct {
	// AgentVersion is qemu-guest-agent's.
	AgentVersion string      `json:"agentVersion,omitempty"`
	Hostname     string      `json:"hostname,omitempty"`
	OS           *OS         `json:"os,omitempty"`
	Interfaces   []Interface `json:"interfaces,omitempty"`
}

// OS is an operating system in the words of os-release(5) and uname(2).
type OS struct {
	ID         string `json:"id,omitempty"`
	PrettyName string `json:"prettyName,omitempty"`
	VersionID  string `json:"versionID,omitempty"`
	// Kernel is uname's release, Machine its hardware name.
	Kernel  string `json:"kernel,omitempty"`
	Machine string `json:"machine,omitempty"`
}

// Interface is one of the VM's network cards as the guest has it; interfaces
// that the guest made by itself are left out.
type Interface struct {
	Name string `json:"name,omitempty"`
	MAC  string `json:"mac,omitempty"`
	// IPs have no prefix length.
	IPs []string `json:"ips,omitempty"`
}

// Parse reads the message of GuestInfo. It has been text that a stranger
// influences: what it holds must not be trusted.
func Parse(message string) (Guest, error) {
	var g Guest
	if err := json.Unmarshal([]byte(message), &g); err != nil {
		return Guest{}, fmt.Errorf("read the message of %s: %w", GuestInfo, err)
	}
	return g, nil
}
