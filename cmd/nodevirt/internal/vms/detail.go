package vms

import (
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Detail is a VM in the JSON of ps and inspect. It omits the seed, which may contain passwords.
type Detail struct {
	Name          string       `json:"name"` // the pod's
	Namespace     string       `json:"namespace"`
	ContainerID   string       `json:"containerID"`
	SandboxID     string       `json:"sandboxID"`
	State         string       `json:"state"`
	ExitCode      *int32       `json:"exitCode,omitempty"`
	Reason        string       `json:"reason,omitempty"`
	Paused        string       `json:"paused,omitempty"` // why the guest is paused
	Message       string       `json:"message,omitempty"`
	CreatedAt     string       `json:"createdAt"` // RFC 3339, as all times
	StartedAt     string       `json:"startedAt,omitempty"`
	FinishedAt    string       `json:"finishedAt,omitempty"`
	Uptime        string       `json:"uptime,omitempty"`
	UptimeSeconds int64        `json:"uptimeSeconds"`
	Image         string       `json:"image"`
	ImageID       string       `json:"imageID"`
	CPUs          uint32       `json:"cpus"`
	Memory        int64        `json:"memory"` // bytes
	Machine       string       `json:"machine"`
	Accelerator   string       `json:"accelerator"`
	Domain        string       `json:"domain"`
	UUID          string       `json:"uuid"`
	QEMUPID       int          `json:"qemuPID,omitempty"`
	IP            string       `json:"ip,omitempty"`
	Disks         []DiskDetail `json:"disks"`
	NICs          []NICDetail  `json:"nics"`
	// Agent is what the guest agent reported, absent while the VM does not run.
	Agent         *agent.State `json:"agent,omitempty"`
	ConsoleSocket string       `json:"consoleSocket"`
	LogPath       string       `json:"logPath"`
	DomainXML     string       `json:"domainXML,omitempty"`
	// Timeline has the phases of the start that have ended.
	Timeline []PhaseDetail `json:"timeline,omitempty"`
	TraceID  string        `json:"traceID,omitempty"`
	// Error is why the shim could not report the VM's status; then only the fields
	// of its list are set.
	Error string `json:"error,omitempty"`

	vm VM
}

// DiskDetail is a disk. Sizes are in bytes.
type DiskDetail struct {
	Name        string `json:"name"`
	Source      string `json:"source"`
	Bus         string `json:"bus"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	Image       string `json:"image,omitempty"` // empty for the disk of the VM's own image
	Path        string `json:"path,omitempty"`  // in the image
	Format      string `json:"format,omitempty"`
	VirtualSize int64  `json:"virtualSize,omitempty"`
	Size        int64  `json:"size,omitempty"` // of the file in the image
	// Mode is how a registry disk reaches the VM, File the file with the guest's
	// writes, and Allocated the space that File takes.
	Mode      string `json:"mode,omitempty"`
	File      string `json:"file,omitempty"`
	Allocated int64  `json:"allocated,omitempty"`
}

// NICDetail is a network interface.
type NICDetail struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // IPv4, with the subnet's length
	IPv6    string `json:"ipv6,omitempty"`    // with the subnet's length
	Gateway string `json:"gateway,omitempty"`
	MAC     string `json:"mac"`
	MTU     int    `json:"mtu"`
	Tap     string `json:"tap"`
}

func details(list []VM, now time.Time) []Detail {
	all := make([]Detail, 0, len(list))
	for _, v := range list {
		all = append(all, detail(v, now))
	}
	return all
}

func detail(v VM, now time.Time) Detail {
	s := v.Status
	d := Detail{
		Name: v.Name(), Namespace: v.Namespace(), ContainerID: s.GetId(), SandboxID: v.Pod.GetId(), State: v.State(),
		Reason: s.GetReason(), Message: s.GetMessage(), Paused: v.Info.Paused,
		CreatedAt: stamp(s.GetCreatedAt()), StartedAt: stamp(s.GetStartedAt()), FinishedAt: stamp(s.GetFinishedAt()),
		Image: v.Image(), ImageID: s.GetImageId(),
		CPUs: v.CPUs(), Memory: v.Info.Spec.Memory, Machine: v.Info.Spec.Machine, Accelerator: v.Info.Accelerator,
		Domain: v.Info.Domain.Name, UUID: v.Info.Domain.UUID, QEMUPID: v.PID, IP: v.IP(),
		Disks: v.disks(), NICs: v.nics(), Agent: v.Info.Agent,
		ConsoleSocket: v.Info.ConsoleSocket, LogPath: s.GetLogPath(), DomainXML: v.Info.DomainXML,
		Timeline: v.timeline(), TraceID: v.Info.TraceID,
		vm: v,
	}
	if up := v.Uptime(now); up > 0 {
		d.Uptime, d.UptimeSeconds = cli.Age(up), int64(up.Seconds())
	}
	if v.Err != nil {
		d.Error = v.Err.Error()
		return d
	}
	if d.State == "Exited" {
		code := s.GetExitCode()
		d.ExitCode = &code
	}
	return d
}

func (v VM) disks() []DiskDetail {
	all := []DiskDetail{}
	for _, d := range v.Info.Spec.Disks {
		k := DiskDetail{Name: d.Name, Source: string(d.Source), Bus: string(d.Bus), ReadOnly: d.ReadOnly}
		from := v.Info.Disk(d.Name)
		switch {
		case d.OnVolume():
			k.Format = from.Format
		case from.Image != nil:
			if d.Source == vmspec.SourceVolume {
				k.Image = from.Image.Image
			}
			k.Path, k.Format, k.VirtualSize, k.Size = from.Image.Path, string(from.Image.Format), from.Image.VirtualSize, from.Image.Size
			k.Mode = string(from.Mode)
		case d.Source == vmspec.SourceEmpty:
			k.Format, k.VirtualSize = from.Format, d.Size
		}
		if !d.ReadOnly && !d.Source.Kind().Fixed {
			k.File, k.Allocated = from.Path, from.Allocated
		}
		all = append(all, k)
	}
	return all
}

func (v VM) nics() []NICDetail {
	all := []NICDetail{}
	var nics []netsetup.NIC
	if v.Info.Network != nil {
		nics = v.Info.Network.NICs
	}
	for _, c := range v.Info.Cards { // which it has got since it runs
		nics = append(slices.Clip(nics), c.Network.NICs...)
	}
	for _, n := range nics {
		nic := NICDetail{
			Name: n.Card, MAC: n.GuestMAC.String(), MTU: n.MTU, Tap: n.Tap,
		}
		if n.IPv4.Address.IsValid() {
			nic.Address = n.IPv4.Address.String()
		}
		if n.IPv6.Address.IsValid() {
			nic.IPv6 = n.IPv6.Address.String()
		}
		if n.IPv4.Gateway.IsValid() {
			nic.Gateway = n.IPv4.Gateway.String()
		}
		all = append(all, nic)
	}
	return all
}

func stamp(nanoseconds int64) string {
	if nanoseconds == 0 {
		return ""
	}
	return time.Unix(0, nanoseconds).UTC().Format(time.RFC3339)
}
