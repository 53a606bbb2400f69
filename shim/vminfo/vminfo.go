// Package vminfo is what the shim tells of a VM beyond CRI's own fields: the
// JSON in "info" of a verbose ContainerStatus. The shim writes it, tools such
// as the nodevirt command read it; crictl inspect shows it.
//
// It owns the fields' names and nothing else.
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

// Key is where Info is in the reply's map.
const Key = "info"

// Info begins with what containerd tells of a container.
type Info struct {
	SandboxID string `json:"sandboxID"`
	// PID is QEMU's, 0 where it doesn't run.
	PID int `json:"pid"`
	// VM is nil for an ordinary container.
	VM *VM `json:"vm,omitempty"`
	// Config is the container's, as CRI handed it over.
	Config any `json:"config"`
}

// VM is what stands for a container on the node.
type VM struct {
	Domain record.Domain `json:"domain"`
	// DomainXML is what libvirt was given, empty where the VM doesn't run. It
	// holds no secrets: those of a guest are in its seed.
	DomainXML   string      `json:"domainXML,omitempty"`
	Accelerator string      `json:"accelerator"`
	Spec        vmspec.Spec `json:"spec"`
	// Disks are what stands behind Spec.Disks, in their order.
	Disks []Disk `json:"disks"`
	// Network is nil where none stands.
	Network *netsetup.Plan `json:"network,omitempty"`
	// Paused is why the guest stands still, as conditions of pods have it; empty
	// where it runs.
	Paused string `json:"paused,omitempty"`
	// Agent is what the guest agent told, nil where the VM doesn't run.
	Agent *agent.State `json:"agent,omitempty"`
	// ConsoleSocket is where the serial console listens while the VM runs. One
	// client at a time is served.
	ConsoleSocket string `json:"consoleSocket"`
	// DisplaySocket is where VNC is served while the VM runs, empty without a display.
	DisplaySocket string `json:"displaySocket,omitempty"`
	// Folder holds the VM's own files.
	Folder string `json:"folder"`
}

// Disk is what a disk of the spec is made of.
type Disk struct {
	Name string `json:"name"`
	// Mode is how a registry disk reaches the VM, empty of others.
	Mode vmspec.Mode `json:"mode,omitempty"`
	// Image is the registry disk below, nil where there is none.
	Image *imageunpack.Disk `json:"image,omitempty"`
	// Path is the file or device that takes the guest's writes, or where it can't
	// write the one that it reads; Format is qcow2 or raw.
	Path   string `json:"path,omitempty"`
	Format string `json:"format,omitempty"`
	// Allocated is what a file really takes, in bytes.
	Allocated int64 `json:"allocated"`
}

// Disk returns what the disk of a name is made of.
func (v VM) Disk(name string) Disk {
	for _, d := range v.Disks {
		if d.Name == name {
			return d
		}
	}
	return Disk{Name: name}
}

// Read finds Info in the map of a verbose reply. Without one, it is an ordinary
// container's.
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
