package lifecycle

import (
	"net"
	"runtime"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vmfile"
)

// Describer translates a record into the domain that libvirt runs.
type Describer struct {
	Disks interface {
		Describe(r record.Container) []domain.Disk
	}
	Files *vmfile.Files
	TPMs  interface {
		Socket(id string) string
	}
	Filesystems interface {
		Socket(id string, n int) string
	}
	Layout layout.Layout
	// Accelerator is what guests run on; Emulator is QEMU's path. Foreign are the paths of QEMU for
	// guests of other architectures, which it translates.
	Accelerator domain.Accelerator
	Emulator    string
	Foreign     map[string]string
	// NodeCPUs are the node's processors.
	NodeCPUs []hostcpu.CPU
}

// emulator returns the path of the QEMU for guests of an architecture, empty if there is none, and what
// they run on.
func (d Describer) emulator(architecture string) (string, domain.Accelerator) {
	if architecture == runtime.GOARCH {
		return d.Emulator, d.Accelerator
	}
	return d.Foreign[architecture], domain.TCG
}

// Describe returns the domain. It opens nothing.
func (d Describer) Describe(r record.Container) domain.Description {
	pod := r.Sandbox.Value.GetMetadata()
	emulator, accelerator := d.emulator(r.Spec.Arch())
	m := domain.Description{
		Name: r.Domain.Name, UUID: r.Domain.UUID,
		ContainerID:   r.ID,
		PodNamespace:  pod.GetNamespace(),
		PodName:       pod.GetName(),
		ContainerName: r.Config.Value.GetMetadata().GetName(),
		Spec:          r.Spec,
		Accelerator:   accelerator,
		Emulator:      emulator,
		UID:           r.Domain.UID, GID: r.Domain.GID,
		ConsoleSocket: d.Layout.ConsoleSocket(r.ID),
		ConsoleLog:    d.Layout.ConsoleFile(r.ID),
		AgentSocket:   d.Layout.AgentSocket(r.ID),
		VSOCKCID:      r.VSOCKCID(),
		MetricsSocket: d.Layout.MetricsSocket(r.ID),
		USBSockets:    d.Layout.USBSockets(r.ID),
		DisplaySocket: d.Layout.DisplaySocket(r.ID),

		TerminalSockets: d.Layout.TerminalSockets(r.ID),
		Disks:           d.Disks.Describe(r),
		UEFI:            r.Firmware,
		HostDevices:     r.HostDevices,
		CPUSet:          resources.Of(r).GetCpusetCpus(),
		NodeCPUs:        d.NodeCPUs,
	}
	if r.Network != nil {
		for _, n := range r.Network.NICs {
			m.NICs = append(m.NICs, domain.NIC{Name: n.Card, Tap: n.Tap, MAC: net.HardwareAddr(n.GuestMAC), MTU: n.MTU})
			if n.Binding == netsetup.Tap {
				m.TapSocket = d.Layout.TapSocket(r.ID)
			}
		}
	}
	if r.Incoming != "" {
		m.MigrationDir = d.Layout.MigrationDir(r.ID)
	}
	if r.Spec.TPM {
		m.TPMSocket = d.TPMs.Socket(r.ID)
	}
	for n := range r.Spec.Filesystems {
		m.FilesystemSockets = append(m.FilesystemSockets, d.Filesystems.Socket(r.ID, n))
	}
	d.Files.Describe(r, &m)
	return m
}
