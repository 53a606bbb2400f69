// Package vmspec translates a pod into the virtual machine that it asks for. It owns
// plain values and one pure translation, from CRI requests (resources, annotations,
// mounts, DNS and host name) to [Unresolved], and from that to [Spec]. It opens no
// file, uses no network and knows no hypervisor.
package vmspec

import (
	"slices"
	"strings"
)

// Spec is a virtual machine, checked and with every default filled in, see
// [Unresolved.Resolve]. It is a value: later steps read it and never write it.
type Spec struct {
	// CPU is the processor that the guest sees.
	CPU CPU `json:"cpu"`
	// Memory is the guest's RAM in bytes, a multiple of 1 MiB.
	Memory int64 `json:"memory"`
	// MaxMemory is the RAM in bytes that the running guest can get at most; 0 for no more than it starts with.
	MaxMemory int64 `json:"maxMemory,omitempty"`
	// HugePage is the size in bytes of the pages that the RAM consists of; 0 for ordinary ones.
	HugePage int64 `json:"hugePage,omitempty"`
	// AddedOverhead is the part in bytes of the container's memory limit that is QEMU's, and not the guest's.
	AddedOverhead int64 `json:"addedOverhead,omitempty"`
	// LockMemory lets QEMU lock the guest's memory, as devices with DMA require.
	LockMemory bool `json:"lockMemory,omitempty"`
	// Architecture is that of the guest's processor, by Go's name; empty is amd64.
	Architecture string `json:"architecture,omitempty"`
	// Machine is the QEMU machine type, such as "q35".
	Machine string `json:"machine"`
	// Firmware identifies the VM to its guest, and boots it.
	Firmware Firmware `json:"firmware"`
	// Chassis is that of SMBIOS.
	Chassis Chassis `json:"chassis,omitzero"`
	// LaunchSecurity encrypts the guest's memory; nil leaves it readable for the node.
	LaunchSecurity *LaunchSecurity `json:"launchSecurity,omitempty"`
	// SMM lets the firmware use system management mode, which secure boot requires.
	SMM bool `json:"smm,omitempty"`
	// TPM attaches a TPM 2.0, whose state ends with the VM unless State has it.
	TPM bool `json:"tpm,omitempty"`
	// State is what outlives the VM's container; nil for nothing.
	State *State `json:"state,omitempty"`
	// Disks are attached in this order. A VM may have none.
	Disks []Disk `json:"disks"`
	// Filesystems are folders that the guest can mount.
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// IOThreads is the number of QEMU's threads for the I/O of disks; 0 means that QEMU's
	// main thread does it.
	IOThreads uint32 `json:"ioThreads,omitempty"`
	// IOThreadPool gives each of these threads one more of the VM's dedicated processors.
	IOThreadPool bool `json:"ioThreadPool,omitempty"`
	// Interfaces are the guest's network cards.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// HostDevices are devices of the node that the guest gets.
	HostDevices []HostDevice `json:"hostDevices,omitempty"`
	// RNG attaches a virtio entropy source, Balloon a virtio memory balloon.
	RNG     bool `json:"rng"`
	Balloon bool `json:"balloon"`
	// VSOCK attaches a socket device, by which processes of the guest and of the node connect to each other.
	VSOCK bool `json:"vsock,omitempty"`
	// USBRedirection attaches slots for USB devices of clients.
	USBRedirection bool `json:"usbRedirection,omitempty"`
	// MetricsPort attaches a port on which the guest asks for metrics of the node and of itself.
	MetricsPort bool `json:"metricsPort,omitempty"`
	// Display attaches a graphics card, whose picture VNC shows.
	Display bool `json:"display,omitempty"`
	// Video is the model of that card.
	Video string `json:"video,omitempty"`
	// Sound is the model of the sound card; empty for none. Nothing plays its sound.
	Sound string `json:"sound,omitempty"`
	// HypervPanic attaches Microsoft's device by which a guest reports a panic, beside the one that each VM has.
	HypervPanic bool `json:"hypervPanic,omitempty"`
	// NoSerial leaves out the serial port, and with it the console.
	NoSerial bool `json:"noSerial,omitempty"`
	// NoConsoleLog keeps what the guest prints on the console out of the container's log.
	NoConsoleLog bool `json:"noConsoleLog,omitempty"`
	// Inputs are further input devices.
	Inputs []Input `json:"inputs,omitempty"`
	// Watchdog is the action of a watchdog, which is attached unless it is empty.
	Watchdog WatchdogAction `json:"watchdog,omitempty"`
	// Transitional makes virtio devices also work with drivers of virtio before 1.0.
	Transitional bool `json:"transitional,omitempty"`
	// NoHotplug leaves out the ports for devices that the running VM gets.
	NoHotplug bool `json:"noHotplug,omitempty"`
	// NoACPI hides ACPI from the guest, which then has no power button.
	NoACPI bool `json:"noACPI,omitempty"`
	// Board are further features of the guest's board, and Clock is its clock.
	Board Board `json:"board,omitzero"`
	Clock Clock `json:"clock,omitzero"`
	// EndOnReboot makes a reboot of the guest its end, as if it had powered off.
	EndOnReboot bool `json:"endOnReboot,omitempty"`
	// StartPaused leaves the guest paused after its start.
	StartPaused bool `json:"startPaused,omitempty"`
	// Hostname is the guest's host name, one DNS label.
	Hostname string `json:"hostname"`
	// Subdomain is the pod's: the guest searches names below it first. May be empty.
	Subdomain string `json:"subdomain,omitempty"`
	// Seed is the content of the cloud-init disk; nil where no disk carries one.
	Seed *Seed `json:"seed,omitempty"`
	// Credentials are the keys and passwords that the guest's agent sets.
	Credentials []Credential `json:"credentials,omitempty"`
	// Hooks are the VM's hook sidecars; nil for none.
	Hooks *Hooks `json:"hooks,omitempty"`
}

// PCIExpress reports whether the VM's board has PCI Express.
func (s Spec) PCIExpress() bool {
	return s.Machine == defaultMachine || strings.HasPrefix(s.Machine, "pc-q35-") || IsARMMachine(s.Machine)
}

// CPU is a guest's processor. Sockets, Cores and Threads are at least 1;
// their product is the number of vCPUs.
type CPU struct {
	Sockets uint32 `json:"sockets"`
	Cores   uint32 `json:"cores"`
	Threads uint32 `json:"threads"`
	// MaxSockets is the number of sockets that the running VM can get at most; 0 for no more than it starts with.
	MaxSockets uint32 `json:"maxSockets,omitempty"`
	// Model is a libvirt CPU model name, "host-passthrough", "host-model",
	// or empty for the best that the accelerator offers.
	Model string `json:"model,omitempty"`
	// Features add to the model or take from it.
	Features []CPUFeature `json:"features,omitempty"`
	// Dedicated says that the vCPUs have processors of the node that no other container uses,
	// IsolateEmulator that QEMU's other threads have one more.
	Dedicated       bool `json:"dedicated,omitempty"`
	IsolateEmulator bool `json:"isolateEmulator,omitempty"`
	// NUMA shows the guest the NUMA nodes of these processors.
	NUMA bool `json:"numa,omitempty"`
	// Realtime are the vCPUs that are scheduled in real time, as a list such as 0-3,^1.
	Realtime string `json:"realtime,omitempty"`
}

// CPUFeature is a CPU flag with libvirt's policy word (force, require,
// optional, disable, forbid).
type CPUFeature struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
}

// Firmware is the system's part of SMBIOS, ACPI tables, and what boots the guest.
type Firmware struct {
	// UUID is the guest's system UUID; empty means the VM's own.
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	// Board is the text about the system that its author does not choose; nil for QEMU's.
	Board *BoardText `json:"board,omitempty"`
	// OnSerial has the BIOS use the serial console.
	OnSerial bool `json:"onSerial,omitempty"`
	// Kernel boots directly instead of the boot disk's loader.
	Kernel *Kernel `json:"kernel,omitempty"`
	// UEFI replaces the BIOS.
	UEFI *UEFI `json:"uefi,omitempty"`
	// Tables are ACPI tables beside QEMU's own.
	Tables []ACPITable `json:"tables,omitempty"`
}

// BoardText is the text of SMBIOS about the system's maker.
type BoardText struct {
	Manufacturer string `json:"manufacturer"`
	Product      string `json:"product"`
	Family       string `json:"family"`
}

// UEFI is a firmware whose variables last as long as the VM, unless its [State] has them.
type UEFI struct {
	// SecureBoot has the firmware start only what Microsoft's keys have signed.
	SecureBoot bool `json:"secureBoot,omitempty"`
}

// ACPITable is an ACPI table with a license for Windows.
type ACPITable struct {
	// Signature is SLIC or MSDM.
	Signature string `json:"signature"`
	// Secret has the table in its key slic.bin or msdm.bin.
	Secret MountedSecret `json:"secret"`
}

// Key returns the key of the Secret that has the table.
func (t ACPITable) Key() string { return strings.ToLower(t.Signature) + ".bin" }

// Chassis is the content of SMBIOS's structure of this name. Empty fields are QEMU's.
type Chassis struct {
	Manufacturer string `json:"manufacturer,omitempty"`
	Version      string `json:"version,omitempty"`
	Serial       string `json:"serial,omitempty"`
	Asset        string `json:"asset,omitempty"`
	SKU          string `json:"sku,omitempty"`
}

// Binding says how a card is connected to the pod's interface.
type Binding string

// The bindings of a card.
const (
	// BindingBridge gives the pod's address on that network to the guest.
	BindingBridge Binding = "bridge"
	// BindingMasquerade leaves the address to the pod, which forwards ports to the guest.
	BindingMasquerade Binding = "masquerade"
	// BindingTap gives a tap or macvtap to the guest that a network binding plug-in made in the pod.
	BindingTap Binding = "tap"
	// BindingManagedTap connects the pod's interface to the guest, which has its addresses from a network
	// binding plug-in.
	BindingManagedTap Binding = "managedTap"
)

// Port is a port, or a range of ports, that is forwarded to a masqueraded guest.
type Port struct {
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	Number   uint16 `json:"number"`
	// End is the last port of a range that begins with Number; 0 for one port.
	End uint16 `json:"end,omitempty"`
}

// Contains reports whether a port of a protocol is forwarded.
func (p Port) Contains(protocol string, number uint16) bool {
	return p.Protocol == protocol && p.Number <= number && number <= max(p.Number, p.End)
}

// DHCPOptions are options of DHCPv4 that only the author of the VM knows.
type DHCPOptions struct {
	BootFile   string   `json:"bootFile,omitempty"`
	TFTPServer string   `json:"tftpServer,omitempty"`
	NTPServers []string `json:"ntpServers,omitempty"`
	// Private have the texts of options by their numbers.
	Private map[uint8]string `json:"private,omitempty"`
}

// Interface is a network card on one of the pod's networks.
type Interface struct {
	Name string `json:"name"`
	// Model is virtio, virtio-transitional, e1000, e1000e or rtl8139.
	Model string `json:"model"`
	// MAC is the guest's hardware address; empty means the one that the pod's CNI gave.
	MAC string `json:"mac,omitempty"`
	// Binding is bridge, masquerade, tap or managedTap; empty is bridge.
	Binding Binding `json:"binding,omitempty"`
	// Plugin is the name of the network binding plug-in that the binding is of; empty for none. Moves says
	// that the VM can migrate with it.
	Plugin string `json:"plugin,omitempty"`
	Moves  bool   `json:"moves,omitempty"`
	// Device is the interface in the pod's network namespace; empty is eth0.
	Device string `json:"device,omitempty"`
	// Ports are forwarded to a masqueraded guest; none means all.
	Ports []Port `json:"ports,omitempty"`
	// NetworkCIDR and NetworkCIDR6 are the private networks of a masqueraded guest; empty
	// means the usual ones.
	NetworkCIDR  string `json:"networkCIDR,omitempty"`
	NetworkCIDR6 string `json:"networkCIDR6,omitempty"`
	// DHCP are further options of the guest's DHCP server; nil for none.
	DHCP *DHCPOptions `json:"dhcp,omitempty"`
	// Queues is the number of parallel queues of the card; 0 means one.
	Queues uint32 `json:"queues,omitempty"`
	// BootOrder is the card's place in the boot order, which it shares with disks. It
	// counts from 1; 0 means not bootable.
	BootOrder uint `json:"bootOrder,omitempty"`
	// PCI is the card's address.
	PCI PCIAddress `json:"pci,omitempty"`
	// ACPIIndex is the number by which the guest names the card; 0 for none.
	ACPIIndex uint `json:"acpiIndex,omitempty"`
	// Unplugged says that the card has no link.
	Unplugged bool `json:"unplugged,omitempty"`
	// Tag is the author's name of the card's role, for the guest's metadata.
	Tag string `json:"tag,omitempty"`
}

// OnPodNetwork reports whether the card is on the pod's own network, not on a secondary one.
func (i Interface) OnPodNetwork() bool { return i.Device == "" || i.Device == podDevice }

// TakesPodAddress reports whether the guest has the address of its pod.
func (s Spec) TakesPodAddress() bool {
	return slices.ContainsFunc(s.Interfaces, func(i Interface) bool { return i.Binding != BindingMasquerade && i.OnPodNetwork() })
}

// Input is an input device. The only type is a tablet.
type Input struct {
	Name string `json:"name"`
	// Bus is usb or virtio.
	Bus string `json:"bus"`
}

// WatchdogAction is what happens when a guest has stopped to reset its watchdog.
type WatchdogAction string

// The actions of a watchdog.
const (
	WatchdogPoweroff WatchdogAction = "poweroff"
	WatchdogReset    WatchdogAction = "reset"
	WatchdogShutdown WatchdogAction = "shutdown"
)

// PCIAddress is the place of a device on the guest's PCI buses, as text such as
// 0000:01:00.0. Empty lets libvirt choose one.
type PCIAddress string

// Seed is the content of a NoCloud data source (cloud-init's documentation,
// "NoCloud") or of a config drive, as the source of its disk says. The disk always has user-data and meta-data, even if they are empty:
// cloud-init ignores a seed without one of them. An empty NetworkConfig makes no
// file.
type Seed struct {
	UserData      string `json:"userData,omitempty"`
	MetaData      string `json:"metaData,omitempty"`
	NetworkConfig string `json:"networkConfig,omitempty"`
	// UserDataFrom and NetworkConfigFrom are folders of the node in which the kubelet
	// keeps a Secret's files. Their content replaces the fields above, and is copied
	// to the NoCloud disk alone.
	UserDataFrom      string `json:"userDataFrom,omitempty"`
	NetworkConfigFrom string `json:"networkConfigFrom,omitempty"`
	// KeysFrom are Secrets with SSH keys, which are added to those of MetaData.
	KeysFrom []MountedSecret `json:"keysFrom,omitempty"`
}
