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
	DomainXML   string           `json:"domainXML,omitempty"`
	Accelerator string           `json:"accelerator"`
	Spec        vmspec.Spec      `json:"spec"`
	Disk        imageunpack.Disk `json:"disk"`
	// Overlay takes the guest's writes.
	Overlay Overlay `json:"overlay"`
	// Network is nil where none stands.
	Network *netsetup.Plan `json:"network,omitempty"`
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

// Overlay is a qcow2 file on top of a disk.
type Overlay struct {
	Path string `json:"path"`
	// Allocated is what the file really takes, in bytes.
	Allocated int64 `json:"allocated"`
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
