// Package vminfo defines what the shim reports of a VM beyond CRI's own fields: the
// JSON in "info" of a verbose ContainerStatus. The shim writes it; tools such as
// the nodevirt command read it, and crictl inspect shows it.
//
// It owns the names and meanings of the fields. It leaves their values to package vm.
package vminfo

import (
	"encoding/json"
	"fmt"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Key is the key of Info in the reply's map.
const Key = "info"

// Info begins with the fields that containerd reports of a container.
type Info struct {
	SandboxID string `json:"sandboxID"`
	// PID is QEMU's process ID, 0 while it does not run.
	PID int `json:"pid"`
	// VM is nil for an ordinary container.
	VM *VM `json:"vm,omitempty"`
	// Config is the container's config as CRI passed it.
	Config any `json:"config"`
}

// VM describes a container's VM on the node.
type VM struct {
	Domain record.Domain `json:"domain"`
	// DomainXML is the domain as passed to libvirt, empty while the VM does not run. It contains no
	// secrets: a guest's secrets are in its seed.
	DomainXML   string      `json:"domainXML,omitempty"`
	Accelerator string      `json:"accelerator"`
	Spec        vmspec.Spec `json:"spec"`
	// Disks are the sources of Spec.Disks, in their order.
	Disks []Disk `json:"disks"`
	// Network is nil while the VM has no network.
	Network *netsetup.Plan `json:"network,omitempty"`
	// Cards are the network cards that the VM has got since it runs.
	Cards []record.PluggedCard `json:"cards,omitempty"`
	// Paused is why the guest is paused, as in pods' conditions; empty while it runs.
	Paused string `json:"paused,omitempty"`
	// Problem is what the guest has lost, such as its TPM; empty if nothing.
	Problem string `json:"problem,omitempty"`
	// Agent is what the guest agent reported, nil while the VM does not run.
	Agent *agent.State `json:"agent,omitempty"`
	// ConsoleSocket is the socket of the serial console while the VM runs. It
	// serves one client at a time.
	ConsoleSocket string `json:"consoleSocket"`
	// DisplaySocket is the socket of VNC while the VM runs, empty without a display.
	DisplaySocket string `json:"displaySocket,omitempty"`
	// Folder holds the VM's own files.
	Folder string `json:"folder"`
	// Fork says whether a guest from a checkpoint has renewed its identity; nil for others.
	Fork *record.Fork `json:"fork,omitempty"`
	// Timeline has the phases of the VM's start that have ended.
	Timeline []record.Phase `json:"timeline,omitempty"`
	// TraceID is the ID of the start's trace, empty without tracing.
	TraceID string `json:"traceID,omitempty"`
}

// Disk is the source of a disk of the spec.
type Disk struct {
	Name string `json:"name"`
	// Mode is how a registry disk reaches the VM, empty for other disks.
	Mode vmspec.Mode `json:"mode,omitempty"`
	// Image is the registry disk below, nil for other disks.
	Image *imageunpack.Disk `json:"image,omitempty"`
	// Path is the file or device that the guest writes to or, if the disk is
	// read-only, reads from. Format is qcow2 or raw.
	Path   string `json:"path,omitempty"`
	Format string `json:"format,omitempty"`
	// Allocated is the space that the file takes on the node, in bytes.
	Allocated int64 `json:"allocated"`
}

// Disk returns the source of the named disk.
func (v VM) Disk(name string) Disk {
	for _, d := range v.Disks {
		if d.Name == name {
			return d
		}
	}
	return Disk{Name: name}
}

// Read decodes Info from the map of a verbose reply. It returns the zero Info if
// there is none, as for an ordinary container.
func Read(verbose map[string]string) (Info, error) {
	var i Info
	text := verbose[Key]
	if text == "" {
		return i, nil
	}
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Info{}, fmt.Errorf("read the verbose status: %w", err)
	}
	return i, nil
}
