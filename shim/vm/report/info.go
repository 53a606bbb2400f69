package report

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// disks is what reports need to know of VMs' disks; [disk.Attachments] does.
type disks interface {
	// Writable returns the files of the container's own that take the guest's writes.
	Writable(r record.Container) []string
}

// describer translates a record into libvirt's terms; package lifecycle's Describer.
type describer interface {
	Describe(r record.Container) domain.Description
}

// info is the part of a verbose status that CRI has no fields for.
type info struct {
	domains    describer
	conditions *Conditions
	agents     agents
	layout     layout.Layout
	log        *slog.Logger
}

func newInfo(o Options) *info {
	return &info{domains: o.Domains, conditions: o.Conditions, agents: o.Agents, layout: o.Layout, log: o.Logger}
}

// of returns the info as JSON. It reads the record and what the guest agent
// reported; it asks libvirtd nothing.
func (i *info) of(v *table.VM) (map[string]string, error) {
	r := v.Record()
	d := i.domains.Describe(r)
	display := ""
	if r.Spec.Display {
		display = d.DisplaySocket
	}
	text, err := json.Marshal(vminfo.Info{
		SandboxID: r.SandboxID,
		PID:       r.Domain.PID,
		VM: &vminfo.VM{
			Domain:        r.Domain,
			DomainXML:     i.domainXML(r, d),
			Accelerator:   string(d.Accelerator),
			Spec:          r.Spec,
			Disks:         diskInfos(r, d.Disks),
			Network:       r.Network,
			Cards:         r.Cards,
			Paused:        i.conditions.pausedReason(v),
			Problem:       i.conditions.impairment(v),
			Agent:         i.agents.Recent(v),
			ConsoleSocket: d.ConsoleSocket,
			DisplaySocket: display,
			Folder:        i.layout.Folder(r.ID),
			Fork:          r.Fork,
			Timeline:      r.Timeline,
			TraceID:       tracing.TraceID(r.Trace),
		},
		Config: r.Config,
	})
	if err != nil {
		return nil, fmt.Errorf("describe container %q: %w", r.ID, err)
	}
	return map[string]string{vminfo.Key: string(text)}, nil
}

func diskInfos(r record.Container, described []domain.Disk) []vminfo.Disk {
	var all []vminfo.Disk
	for i, d := range described {
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

// domainXML is what libvirtd was given for a VM that runs. A VM that can't be
// described any more must not make its status fail.
func (i *info) domainXML(r record.Container, d domain.Description) string {
	if r.State != record.Running {
		return ""
	}
	text, err := domain.XML(d)
	if err != nil {
		table.Logger(i.log, r).Warn("describing a VM failed", "error", err)
		return ""
	}
	return text
}

// allocated returns how much of a disk a file takes, in bytes; 0 if it is missing.
func allocated(path string) int64 {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}
