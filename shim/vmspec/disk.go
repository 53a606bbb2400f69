package vmspec

// Source says where a disk's content comes from.
type Source string

const (
	// SourceImage is the registry disk in the container's image. What the guest
	// writes goes with the container.
	SourceImage Source = "image"
	// SourceVolume is one in an image that the container mounts.
	SourceVolume Source = "volume"
	// SourceSeed is the NoCloud disk made from Spec.Seed.
	SourceSeed Source = "seed"
	// SourceEmpty is a disk without content, which goes with the container.
	SourceEmpty Source = "empty"
	// SourceImport is a disk of another node, which this node knows as Disk.Import.
	SourceImport Source = "import"
	// SourceClaim is a volume of the pod's, which outlives it.
	SourceClaim Source = "claim"
)

// Origin says of which registry disk a claim becomes a copy, before its first use.
type Origin string

// The origins of a claim; without one it has to be a disk already.
const (
	// OriginOwn is the disk in the container's image, as of a SourceImage.
	OriginOwn Origin = "image"
	// OriginVolume is one in an image that the container mounts, as of a SourceVolume.
	OriginVolume Origin = "volume"
)

// Bus is a disk's bus: virtio, sata or scsi.
type Bus string

// The buses a disk can be on.
const (
	BusVirtio Bus = "virtio"
	BusSATA   Bus = "sata"
	BusSCSI   Bus = "scsi"
)

// Disk is one drive of the guest.
type Disk struct {
	// Name is unique in the machine; it becomes the libvirt alias "ua-NAME".
	Name   string `json:"name"`
	Source Source `json:"source"`
	// Host is where a SourceClaim is on the node: a block device, or a folder with
	// the file disk.img.
	Host  string `json:"host,omitempty"`
	Block bool   `json:"block,omitempty"`
	// Origin is what a claim begins as, with Image and Path as of such a disk.
	Origin Origin `json:"origin,omitempty"`
	// Image is the image of a SourceVolume, as the kubelet names it: by its id.
	Image string `json:"image,omitempty"`
	// Path is the disk's path under /disk in an image; empty means the only disk
	// there is.
	Path string `json:"path,omitempty"`
	// Mode is how a registry disk reaches the machine; empty, in older records, is file.
	Mode Mode `json:"mode,omitempty"`
	// Size of a SourceEmpty in bytes, a multiple of 1 MiB.
	Size int64 `json:"size,omitempty"`
	// Import is the node's name of a SourceImport.
	Import string `json:"import,omitempty"`
	Bus    Bus    `json:"bus"`
	// CDROM makes it a CD-ROM drive, ReadOnly a disk that the guest can't write.
	CDROM    bool   `json:"cdrom,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Serial   string `json:"serial,omitempty"`
	// BootOrder counts from 1; 0 means not bootable.
	BootOrder uint `json:"bootOrder,omitempty"`
	// Cache, IO and ErrorPolicy are libvirt's words, or empty for QEMU's defaults.
	Cache       string `json:"cache,omitempty"`
	IO          string `json:"io,omitempty"`
	ErrorPolicy string `json:"errorPolicy,omitempty"`
}

// WithCDROMs returns the machine with the disks that are CDs, as their content
// tells, in CD-ROM drives. It is for machines of which nobody says what their
// disks are.
func (s Spec) WithCDROMs(isCD func(Disk) bool) Spec {
	all := make([]Disk, 0, len(s.Disks))
	for _, d := range s.Disks {
		if isCD(d) {
			d.CDROM, d.ReadOnly, d.Bus = true, true, BusSATA
		}
		all = append(all, d)
	}
	s.Disks = all
	return s
}
