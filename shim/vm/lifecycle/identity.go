package lifecycle

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// newRecord returns the record of a container before anything is done for it.
func newRecord(sandbox record.Sandbox, config *runtimeapi.ContainerConfig) record.Container {
	r := record.Container{
		ID:        record.NewID(),
		SandboxID: sandbox.ID,
		State:     record.Creating,
		CreatedAt: time.Now(),
		Sandbox:   sandbox.Config,
		Incoming:  vmspec.Migration(sandbox.Config.Value.GetAnnotations()),
	}
	if config.GetMetadata().GetAttempt() == 0 { // else the sandbox was made for an earlier container
		r.Timeline = slices.Clone(sandbox.Timeline)
	}
	r.Config.Value = config
	pod := sandbox.Config.Value
	r.Domain = record.Domain{
		Name: domainName(pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), r.ID),
		UUID: uuid.NewString(),
	}
	return r
}

// logPath is where CRI wants the container's log. Where CRI does not say, as with
// a hand-written config of crictl's, the log is in the container's folder.
func logPath(l layout.Layout, r record.Container) string {
	dir, path := r.Sandbox.Value.GetLogDirectory(), r.Config.Value.GetLogPath()
	if dir == "" || path == "" {
		return l.Log(r.ID)
	}
	return filepath.Join(dir, path)
}

// consoleOf is a container's serial console, and where its output goes.
func consoleOf(l layout.Layout, r record.Container) console.Console {
	c := l.Console(r.ID, r.LogPath)
	c.Unlogged = r.Spec.NoConsoleLog
	return c
}

// domainName is how virsh shows the VM: its pod, and enough of the container's id
// to distinguish it from an earlier one. Clients of a display see it, too. libvirtd
// names files after it.
func domainName(namespace, name, id string) string {
	clean := func(s string, most int) string {
		b := []byte(s)
		for i, c := range b {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' {
				b[i] = '-'
			}
		}
		return string(b[:min(len(b), most)])
	}
	return clean(namespace, 63) + "_" + clean(name, 96) + "_" + id[:12]
}
