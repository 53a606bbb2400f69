// Package vmspec says what virtual machine a pod asks for. It holds plain
// values and the one pure translation that makes them, from what the kubelet
// handed over in CRI requests: resources, annotations, DNS and host name. It
// opens no file, reaches no network and knows no hypervisor.
package vmspec

// Spec is a virtual machine as its pod's author asked for it, checked and with
// every default filled in. It is a value: later steps read it and never write it.
type Spec struct {
	// CPU is the processor that the guest sees.
	CPU CPU `json:"cpu"`
	// Memory is the guest's RAM in bytes, a multiple of 1 MiB.
	Memory int64 `json:"memory"`
	// Machine is the QEMU machine type, such as "q35".
	Machine string `json:"machine"`
	// Firmware identifies the machine to its guest and says what it boots.
	Firmware Firmware `json:"firmware"`
	// Disks are attached in this order. There is at least one.
	Disks []Disk `json:"disks"`
	// Interfaces are the guest's network cards.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// RNG attaches a virtio entropy source, Balloon a virtio memory balloon.
	RNG     bool `json:"rng"`
	Balloon bool `json:"balloon"`
	// Display attaches a graphics card, whose picture VNC shows.
	Display bool `json:"display,omitempty"`
	// Hostname is the guest's host name, one DNS label.
	Hostname string `json:"hostname"`
	// Seed is the content of the NoCloud disk; nil where no disk carries one.
	Seed *Seed `json:"seed,omitempty"`
}

// CPU is a guest's processor. Sockets, Cores and Threads are at least 1;
// their product is the number of vCPUs.
type CPU struct {
	Sockets uint32 `json:"sockets"`
	Cores   uint32 `json:"cores"`
	Threads uint32 `json:"threads"`
	// Model is a libvirt CPU model name, "host-passthrough", "host-model",
	// or empty for the best that the accelerator offers.
	Model string `json:"model,omitempty"`
	// Features add to the model or take from it.
	Features []CPUFeature `json:"features,omitempty"`
}

// CPUFeature is a CPU flag with libvirt's policy word (force, require,
// optional, disable, forbid).
type CPUFeature struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
}

// Firmware is what the guest's SMBIOS tells and what boots.
type Firmware struct {
	// UUID is the guest's system UUID; empty means the VM's own.
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	// Kernel boots directly instead of the boot disk's loader.
	Kernel *Kernel `json:"kernel,omitempty"`
}

// Kernel is a kernel in the container's image, booted directly. Paths are
// absolute paths in the image.
type Kernel struct {
	Path   string `json:"path,omitempty"`
	Initrd string `json:"initrd,omitempty"`
	Args   string `json:"args,omitempty"`
}

// Binding says how a card stands to the pod's interface.
type Binding string

// The bindings of a card.
const (
	// BindingBridge gives the pod's address on that network to the guest.
	BindingBridge Binding = "bridge"
	// BindingMasquerade leaves it to the pod, which passes ports on to the guest.
	BindingMasquerade Binding = "masquerade"
)

// Port is one that is passed on to a masqueraded guest.
type Port struct {
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	Number   uint16 `json:"number"`
}

// Interface is a network card on one of the pod's networks.
type Interface struct {
	Name string `json:"name"`
	// Model is virtio, e1000, e1000e or rtl8139.
	Model string `json:"model"`
	// MAC is the guest's hardware address; empty means the one that the pod's CNI gave.
	MAC string `json:"mac,omitempty"`
	// Binding is bridge or masquerade; empty, in older records, is bridge.
	Binding Binding `json:"binding,omitempty"`
	// Device is the interface in the pod's network namespace; empty, in older records, is eth0.
	Device string `json:"device,omitempty"`
	// Ports are passed on to a masqueraded guest; none means all.
	Ports []Port `json:"ports,omitempty"`
	// NetworkCIDR and NetworkCIDR6 are the private networks of a masqueraded guest; empty
	// means the usual ones.
	NetworkCIDR  string `json:"networkCIDR,omitempty"`
	NetworkCIDR6 string `json:"networkCIDR6,omitempty"`
	// Queues of the card that work side by side; 0 means one.
	Queues uint32 `json:"queues,omitempty"`
}

// Seed is a NoCloud data source (cloud-init's documentation, "NoCloud"): the
// content of its files. user-data and meta-data are always there, be they empty:
// cloud-init passes over a seed that lacks one of them. An empty NetworkConfig
// makes no file.
type Seed struct {
	UserData      string `json:"userData,omitempty"`
	MetaData      string `json:"metaData,omitempty"`
	NetworkConfig string `json:"networkConfig,omitempty"`
	// UserDataFrom and NetworkConfigFrom are folders of the node, into which the
	// kubelet has put a Secret's files, that have what is not said above. What is in
	// them is nowhere but on the NoCloud disk.
	UserDataFrom      string `json:"userDataFrom,omitempty"`
	NetworkConfigFrom string `json:"networkConfigFrom,omitempty"`
}
