package domain

import (
	"net"

	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Accelerator executes guest code: [KVM] or [TCG].
type Accelerator = accel.Accelerator

// The accelerators.
const (
	KVM = accel.KVM
	TCG = accel.TCG
)

// Description describes a domain: the input of [XML]. It is a plain value.
type Description struct {
	// Name is libvirt's name of the domain, without a slash; UUID its identity.
	Name, UUID string
	// ContainerID and the names below go to the domain's metadata, from which
	// [Observer.Domains] reads them back.
	ContainerID                          string
	PodNamespace, PodName, ContainerName string
	// Spec is the pod's VM spec.
	Spec vmspec.Spec
	// Accelerator is resolved already, see package accel.
	Accelerator Accelerator
	// Emulator is the path of qemu-system-x86_64.
	Emulator string
	// UID and GID are the ids that QEMU runs with, without capabilities. With KVM they
	// must be able to open /dev/kvm, see [accel.DeviceGroup].
	UID, GID uint32
	// Disks are in the order of Spec.Disks. NICs are found by the names of
	// Spec.Interfaces.
	Disks []Disk
	NICs  []NIC
	// HostDevices are in the order of Spec.HostDevices. QEMU opens their nodes as UID.
	HostDevices []hostdevice.Device
	// ConsoleSocket is the path of the serial console's socket, which libvirtd
	// creates. QEMU appends the console's output to ConsoleLog, with or without a
	// client. Both are in folders that only root can write, since libvirtd opens
	// them as root.
	ConsoleSocket, ConsoleLog string
	// AgentSocket is the path of the socket of the guest agent's port, in a folder
	// like that of ConsoleSocket.
	AgentSocket string
	// VSOCKCID is the address of the VM's socket device; 0 for none.
	VSOCKCID uint32
	// MetricsSocket is the path of the socket of the port for metrics, if Spec.MetricsPort is
	// set, in a folder like that of ConsoleSocket.
	MetricsSocket string
	// USBSockets are the paths of the sockets of the slots for USB devices of clients, if
	// Spec.USBRedirection is set, in a folder like that of ConsoleSocket.
	USBSockets []string
	// TerminalSockets are the paths of the sockets of further consoles, which are
	// /dev/hvc0 and so on in a Linux guest.
	TerminalSockets []string
	// DisplaySocket is the path of QEMU's VNC socket, if Spec.Display is set. QEMU
	// creates it, in a folder that belongs to UID.
	DisplaySocket string
	// FilesystemSockets are the paths of the sockets of virtiofsd, in the order of
	// Spec.Filesystems. QEMU connects to them as UID.
	FilesystemSockets []string
	// Kernel and Initrd are the VM's private copies of Spec.Firmware.Kernel's
	// files. QEMU opens them by path, as UID.
	Kernel, Initrd string
	// Encryption is the node's, if Spec.LaunchSecurity is set.
	Encryption Encryption
	// UEFI is the node's firmware, nil for a VM with a BIOS. UEFIVariables is the path of
	// the VM's copy of its variables, which QEMU writes as UID; empty for firmware without any.
	UEFI          *uefi.Firmware
	UEFIVariables string
	// MigrationDir is the folder in which QEMU makes sockets to receive its guest; empty
	// for a guest that boots.
	MigrationDir string
	// Ignition is the path of a file with a configuration for Ignition; empty for none.
	Ignition string
	// ACPITables are the VM's copies of Spec.Firmware.Tables.
	ACPITables []ACPITable
	// CPUSet are the node's processors that the container may use, as a list such as 0-3,7;
	// NodeCPUs are all of the node's.
	CPUSet   string
	NodeCPUs []hostcpu.CPU
	// TPMSocket is the path of the socket of the VM's TPM, if Spec.TPM is set. QEMU
	// connects to it as UID.
	TPMSocket string
	// RAMSocket is the path of the socket by which QEMU gets the RAM that it shares with others, as UID;
	// empty for a QEMU with its own.
	RAMSocket string
	// TapSocket is the path of the socket by which QEMU gets the taps of network binding plug-ins, as UID;
	// empty for a VM without any.
	TapSocket string
}

// ACPITable is the path of a file with an ACPI table.
type ACPITable struct{ Signature, Path string }

// Disk is the content of one disk: the layers of its backing chain. The guest
// writes to the first.
type Disk struct {
	Layers []Layer
	// ErrorPolicy is the default if the spec has none for the disk.
	ErrorPolicy string
}

// Layer is one file of a backing chain.
type Layer struct {
	// Format is qcow2 or raw. It is never probed: a guest can write a qcow2 header
	// into its raw disk.
	Format string
	// Path is the path of the file. With an FDGroup it only serves readers of the
	// XML.
	Path string
	// Block means that Path is a block device. libvirt accepts no descriptor of one.
	Block bool
	// Length is how many bytes of a block device the guest has; 0 for all.
	Length int64
	// ISCSI is the layer's iSCSI disk, in place of Path.
	ISCSI *ISCSI
	// RBD is the layer's image in Ceph, in place of Path.
	RBD *RBD
	// FDGroup names the descriptors that QEMU uses instead of opening Path, see
	// [Lifecycle.Start]. If it is empty, QEMU opens Path as the VM's UID.
	FDGroup string
	// ReadOnly makes the disk read-only if it is set on the top layer. Other layers
	// are always read-only.
	ReadOnly bool
}

// NIC is the node's side of a network card.
type NIC struct {
	// Name is the name of the card in the spec.
	Name string
	// Tap is the name of a persistent tap, which must be in libvirtd's network
	// namespace when the domain starts.
	Tap string
	// MAC is the address of the guest's card.
	MAC net.HardwareAddr
	// MTU, in bytes, is passed to the guest by virtio; 0 means 1500.
	MTU int
}
