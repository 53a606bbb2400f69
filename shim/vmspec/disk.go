package vmspec

import (
	"cmp"
	"slices"
)

// Source says where a disk's content comes from. [VolumeKinds] is the table of
// sources.
type Source string

const (
	// SourceImage is the registry disk in the container's image. Writes of the
	// guest are deleted with the container.
	SourceImage Source = "image"
	// SourceVolume is a registry disk in an image that the container mounts.
	SourceVolume Source = "volume"
	// SourceSeed is the NoCloud disk made from Spec.Seed.
	SourceSeed Source = "seed"
	// SourceConfigDrive is a config drive made from Spec.Seed.
	SourceConfigDrive Source = "configDrive"
	// SourceConfigMap is a read-only disk with the files of a ConfigMap, in Disk.Host.
	SourceConfigMap Source = "configMap"
	// SourceSecret is such a disk of a Secret.
	SourceSecret Source = "secret"
	// SourceDownwardAPI is such a disk of the pod's fields.
	SourceDownwardAPI Source = "downwardAPI"
	// SourceServiceAccount is such a disk of a service account.
	SourceServiceAccount Source = "serviceAccount"
	// SourceSysprep is such a disk of a ConfigMap or Secret for Windows.
	SourceSysprep Source = "sysprep"
	// SourceEmpty is a disk without content, which is deleted with the container.
	SourceEmpty Source = "empty"
	// SourceImport is a disk of another node, which this node knows as Disk.Import.
	SourceImport Source = "import"
	// SourceISCSI is a PVC that QEMU opens over the network, Disk.Network.
	SourceISCSI Source = "iscsi"
	// SourceRBD is such a PVC on Ceph.
	SourceRBD Source = "rbd"
	// SourcePVC is a writable volume of the pod, such as a PVC, which outlives the pod.
	SourcePVC Source = "claim"
	// SourceEphemeral is such a volume that the VM only reads. Writes of the guest are
	// deleted with the container.
	SourceEphemeral Source = "ephemeral"
	// SourceMetrics is a read-only disk with metrics of the node and the VM.
	SourceMetrics Source = "downwardMetrics"
	// SourceContainerPath is a folder that the container mounts for another reason. It is
	// never a disk.
	SourceContainerPath Source = "containerPath"
	// SourceMemoryDump is a PVC that the guest's memory is dumped to. It is no disk.
	SourceMemoryDump Source = "memoryDump"
	// SourceDrive is a CD-ROM drive without a medium, which the running VM can get.
	SourceDrive Source = "drive"
	// SourceHostDisk is a file in a folder of the node, which outlives the pod.
	SourceHostDisk Source = "hostDisk"
)

// Origin is the source of the registry disk that a PVC becomes a copy of before
// its first use.
type Origin string

// The origins of a PVC. A PVC without one must be a disk already.
const (
	// OriginOwn is the disk in the container's image, see [SourceImage].
	OriginOwn = Origin(SourceImage)
	// OriginVolume is a disk in an image that the container mounts, see [SourceVolume].
	OriginVolume = Origin(SourceVolume)
)

// Bus is a disk's bus: virtio, sata, scsi or usb.
type Bus string

// The buses a disk can be on.
const (
	BusVirtio Bus = "virtio"
	BusSATA   Bus = "sata"
	BusSCSI   Bus = "scsi"
	BusUSB    Bus = "usb"
)

// MaxDisks is how many disks a VM can have.
const MaxDisks = 64

// Disk is one drive of the guest.
type Disk struct {
	// Name is unique in the VM; it becomes the libvirt alias "ua-NAME".
	Name   string `json:"name"`
	Source Source `json:"source"`
	// Host is the path on the node of a SourcePVC or a SourceEphemeral: a block device, or
	// a folder with the file disk.img. Of a SourceHostDisk it is the folder with File. Of a
	// disk with files it is the folder that holds them.
	Host  string `json:"host,omitempty"`
	Block bool   `json:"block,omitempty"`
	// File is the name of a SourceHostDisk in Host. Of a SourceContainerPath it is the path
	// in the container.
	File string `json:"file,omitempty"`
	// Origin is the initial content of a PVC. Image and Path then describe the
	// registry disk.
	Origin Origin `json:"origin,omitempty"`
	// Image is the image of a SourceVolume, by its id, as the kubelet passes it.
	Image string `json:"image,omitempty"`
	// Path is the disk's path in an image, relative to /disk or absolute; empty means the only disk
	// there is.
	Path string `json:"path,omitempty"`
	// Mode is how a registry disk is attached to the VM. It is empty in a [Request]
	// that leaves it to the node, and for disks that come from no image.
	Mode Mode `json:"mode,omitempty"`
	// Size of a SourceEmpty in bytes, a multiple of 1 MiB. Of a SourcePVC it is the size
	// of the disk.img to create if the volume is a folder without one; 0 creates none. Of a
	// SourceHostDisk it is the size of the file to create, in the same way.
	Size int64 `json:"size,omitempty"`
	// Label is the label of a disk with files.
	Label string `json:"label,omitempty"`
	// Import is the node's name of a SourceImport.
	Import string `json:"import,omitempty"`
	// Network is what a SourceISCSI or SourceRBD is, and Secret its credentials, if any.
	Network *NetworkDisk  `json:"network,omitempty"`
	Secret  MountedSecret `json:"secret,omitzero"`
	Bus     Bus           `json:"bus"`
	// Target is libvirt's name of the disk, such as "vda", which is unique in the VM
	// and never changes. It is empty in a [Request].
	Target string `json:"target,omitempty"`
	// CDROM makes it a CD-ROM drive, ReadOnly a disk that the guest can't write. LUN
	// passes the guest's SCSI commands to the node's device.
	CDROM bool `json:"cdrom,omitempty"`
	// Tray is open or closed, that of a CD-ROM drive; empty is closed.
	Tray     string `json:"tray,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	LUN      bool   `json:"lun,omitempty"`
	Serial   string `json:"serial,omitempty"`
	// BootOrder counts from 1; 0 means not bootable.
	BootOrder uint `json:"bootOrder,omitempty"`
	// Cache, IO and ErrorPolicy are libvirt's words, or empty for QEMU's defaults.
	Cache       string `json:"cache,omitempty"`
	IO          string `json:"io,omitempty"`
	ErrorPolicy string `json:"errorPolicy,omitempty"`
	// Shared says that the folder of a SourceHostDisk is the same on all nodes.
	Shared bool `json:"shared,omitempty"`
	// Copied makes a SourcePVC the copy of the disk that the guest of a migration brings.
	Copied bool `json:"copied,omitempty"`
	// Preallocated says that the storage of the volume is allocated in advance. A disk that the node makes on it gets all of
	// its space at once, and the guest's discards free nothing.
	Preallocated bool `json:"preallocated,omitempty"`
	// Shareable lets other VMs write the volume at the same time.
	Shareable bool `json:"shareable,omitempty"`
	// BlockSize is what the guest sees of the disk's blocks.
	BlockSize BlockSize `json:"blockSize,omitzero"`
	// IOThread is the thread that does the disk's I/O, from 1 to Spec.IOThreads; 0 is QEMU's
	// main thread. Queues is the number of parallel queues of a disk on bus virtio; 0 is
	// QEMU's default.
	IOThread uint32 `json:"ioThread,omitempty"`
	Queues   uint32 `json:"queues,omitempty"`
	// PCI is the address of a disk on bus virtio.
	PCI PCIAddress `json:"pci,omitempty"`
	// Tag is the author's name of the disk's role, for the guest's metadata.
	Tag string `json:"tag,omitempty"`
}

// OnVolume reports whether the disk is on a volume that the container mounts, or has as
// a device.
func (d Disk) OnVolume() bool { return d.Source.Kind().Needs == NeedVolume }

// OnVolumes returns a function that reports whether the disk of a name is on a volume. Such a disk is the same
// whatever image it began as: the guest's next pod need not have that image.
func OnVolumes(disks []Disk) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(disks, func(d Disk) bool { return d.Name == name && d.OnVolume() })
	}
}

// Registry reports whether the disk is one in an image.
func (d Disk) Registry() bool { return d.Source.Kind().Registry }

// Transfer returns what a live migration does with the disk, or why the VM cannot have one.
func (d Disk) Transfer() (m Transfer, why string) {
	m = d.Source.Kind().Transfer
	switch {
	case d.Registry() && d.Mode == ModeISCSI:
		return "", "has the mode iscsi: its target daemon is on the node"
	case d.Source == SourceHostDisk && !d.Shared:
		return "", "is a hostDisk that is not shared"
	case m == TransferNone:
		return "", "is imported from another node, which this node alone may reach"
	case m == TransferCopied && (d.CDROM || d.ReadOnly):
		return TransferRemade, "" // the guest wrote nothing
	}
	return m, ""
}

// Copies reports whether a live migration can copy the disk to another PVC.
func (d Disk) Copies() bool {
	return d.Source == SourcePVC && d.Network == nil && !d.ReadOnly && !d.CDROM && !d.LUN && !d.Shareable
}

// Begins returns the source of the disk's first content: that of its origin, or
// its own.
func (d Disk) Begins() Source { return cmp.Or(Source(d.Origin), d.Source) }
