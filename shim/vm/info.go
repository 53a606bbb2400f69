package vm

import (
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// info is what there is to tell of a container beyond its status, as JSON. It
// comes from the record, so that it doesn't need libvirtd, and
// from what is remembered of the guest agent.
func (m *Manager) info(c *machine) (map[string]string, error) {
	r := c.record()
	display := ""
	if r.Spec.Display {
		display = m.displaySocket(r.ID)
	}
	info, err := json.Marshal(vminfo.Info{
		SandboxID: r.SandboxID,
		PID:       r.Domain.PID,
		VM: &vminfo.VM{
			Domain:        r.Domain,
			DomainXML:     m.domainXML(r),
			Accelerator:   string(m.Accelerator),
			Spec:          r.Spec,
			Disks:         m.disksInfo(r),
			Network:       r.Network,
			Paused:        c.pausedText(),
			Agent:         m.agentState(c),
			ConsoleSocket: m.consoleSocket(r.ID),
			DisplaySocket: display,
			Folder:        m.Records.ContainerDir(r.ID),
		},
		Config: r.Config,
	})
	if err != nil {
		return nil, fmt.Errorf("tell of container %q: %w", r.ID, err)
	}
	return map[string]string{vminfo.Key: string(info)}, nil
}

func (m *Manager) disksInfo(r record.Container) []vminfo.Disk {
	var all []vminfo.Disk
	for i, d := range m.Disks.Describe(r) {
		spec := r.Spec.Disks[i]
		k := vminfo.Disk{Name: spec.Name, Mode: spec.Mode, Image: r.Disks[spec.Name].Image}
		if spec.Registry() && k.Mode == "" { // of an older record
			k.Mode = vmspec.ModeFile
		}
		if len(d.Layers) > 0 {
			top := d.Layers[0]
			k.Path, k.Format, k.Allocated = top.Path, top.Format, allocated(top.Path)
		}
		all = append(all, k)
	}
	return all
}

// domainXML is what libvirtd was given for a machine that runs. One that can't
// be described any more must not make the status fail.
func (m *Manager) domainXML(r record.Container) string {
	if r.State != record.Running {
		return ""
	}
	text, err := domain.XML((&launch{Manager: m, rec: r}).machine())
	if err != nil {
		m.log(r).Warn("describing a VM failed", "error", err)
		return ""
	}
	return text
}

// allocated is what a file really takes, in bytes; 0 if it isn't there.
func allocated(path string) int64 {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}
