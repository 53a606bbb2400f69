package domain

import (
	"net"

	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Accelerator is what runs guest code: [KVM] or [TCG].
type Accelerator = accel.Accelerator

// The accelerators.
const (
	KVM = accel.KVM
	TCG = accel.TCG
)

// Machine is all that a domain's XML is made of. It is a plain value.
type Machine struct {
	// Name is libvirt's name of the domain, without a slash; UUID its identity.
	Name, UUID string
	// ContainerID and the names below go to the domain's metadata, from which
	// [Driver.Domains] reads them back.
	ContainerID                          string
	PodNamespace, PodName, ContainerName string
	// Spec is what the pod's author asked for.
	Spec vmspec.Spec
	// Accelerator is resolved already, see package accel.
	Accelerator Accelerator
	// Emulator is the path of qemu-system-x86_64.
	Emulator string
	// UID and GID are what QEMU runs as, without capabilities. With KVM they
	// must be able to open /dev/kvm, see [accel.DeviceGroup].
	UID, GID uint32
	// Disks are in the order of Spec.Disks. NICs are found by the names of
	// Spec.Interfaces.
	Disks []Disk
	NICs  []NIC
	// ConsoleSocket is where the serial console will listen; libvirtd makes the
	// socket. ConsoleLog is the file that everything written to the console is
	// appended to, whether somebody listens or not. Both lie in folders that
	// only root can write, since libvirtd opens them as root.
	ConsoleSocket, ConsoleLog string
	// AgentSocket is where the guest agent's port will listen, in a folder as
	// ConsoleSocket's.
	AgentSocket string
	// TerminalSockets are where further consoles will listen, /dev/hvc0 and so on
	// in a Linux guest.
	TerminalSockets []string
	// DisplaySocket is where QEMU will serve VNC, with Spec.Display; QEMU makes the
	// socket, in a folder of UID's own.
	DisplaySocket string
	// Kernel and Initrd are the VM's private copies of Spec.Firmware.Kernel's
	// files. QEMU opens them by path, as UID.
	Kernel, Initrd string
}

// Disk is the content of one drive: the layers of its backing chain, the one
// that the guest writes first.
type Disk struct {
	Layers []Layer
	// ErrorPolicy is for a disk of which the spec says none.
	ErrorPolicy string
}

// Layer is one file of a backing chain.
type Layer struct {
	// Format is qcow2 or raw. It is always told, never probed: a guest can
	// write a qcow2 header into its raw disk.
	Format string
	// Path tells where the file lies. With an FDGroup it is for the reader of
	// the XML only.
	Path string
	// Block says that Path is a block device's node. libvirt takes no descriptor of one.
	Block bool
	// ISCSI is where QEMU finds the layer, in place of Path.
	ISCSI *ISCSI
	// FDGroup names the descriptors that QEMU uses instead of opening Path, see
	// [Driver.Start]. Without one, QEMU opens Path as the VM's UID.
	FDGroup string
	// ReadOnly makes a top layer a disk that the guest can't write. Layers
	// below the top are read-only in any case.
	ReadOnly bool
}

// NIC is the host's end of a network card.
type NIC struct {
	// Name is that of the card in the spec.
	Name string
	// Tap is a persistent tap device, made by others, in libvirtd's network
	// namespace when the domain starts.
	Tap string
	// MAC is the guest's hardware address.
	MAC net.HardwareAddr
	// MTU in bytes is told to the guest by virtio; 0 leaves it at 1500.
	MTU int
}
