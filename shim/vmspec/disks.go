package vmspec

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// maxShortSerial is the room of virtio's and ATA's serial fields; QEMU cuts off
// the rest without a word. On USB, newer ones do not start with more.
const maxShortSerial = 20

// disks reads the drives of a VMI, in its order. As with KubeVirt every disk
// has the volume of its name, but for a CD-ROM drive, which may be empty; a volume that no
// disk has gets one behind the others.
func disks(at *field.Path, given []kubevirt.Disk, v volumes, boot bootOrder, architecture string) ([]Disk, field.ErrorList) {
	var result []Disk
	var problems field.ErrorList
	names, serials := map[string]bool{}, map[string]bool{}
	for i, d := range given {
		at := at.Index(i)
		volume := v.find(d.Name)
		drive := volume == nil && d.CDRom != nil
		switch {
		case d.Name == "":
			problems = append(problems, field.Required(at.Child("name"), ""))
		case names[d.Name]:
			problems = append(problems, field.Duplicate(at.Child("name"), d.Name))
		case drive: // empty, as with KubeVirt
		case volume == nil:
			problems = append(problems, invalid(at.Child("name"), d.Name, "no volume has this name"))
		case volume.filesystem:
			problems = append(problems, invalid(at.Child("name"), d.Name, "its volume is in filesystems, too; remove one of them"))
		}
		var content Disk
		if drive {
			content.Source = SourceDrive
		}
		if volume != nil {
			content = volume.Disk
		}
		disk, p := readDisk(at, d, content, architecture)
		problems = append(problems, p...)
		problems = append(problems, boot.take(at, disk.BootOrder)...)
		if disk.Serial != "" && serials[disk.Serial] {
			problems = append(problems, field.Duplicate(at.Child("serial"), disk.Serial))
		}
		names[d.Name], serials[disk.Serial] = true, true
		result = append(result, disk)
	}
	for _, volume := range v.all {
		if volume.name != "" && !names[volume.name] && !volume.table && !volume.filesystem && !volume.Source.Kind().hidden() {
			disk, p := readDisk(at, kubevirt.Disk{Name: volume.name}, volume.Disk, architecture)
			problems = append(problems, p...)
			result = append(result, disk)
		}
	}
	return result, problems
}

// CheckDevice refuses a disk with several devices.
func CheckDevice(at *field.Path, d kubevirt.Disk) *field.Error {
	switch {
	case d.Disk != nil && d.CDRom != nil:
		return refused(at, "disk and cdrom: use one of them")
	case d.LUN != nil && (d.Disk != nil || d.CDRom != nil):
		return refused(at, "lun and another device: use one of them")
	}
	return nil
}

// readDisk adds to the content of a disk how it is attached.
func readDisk(at *field.Path, d kubevirt.Disk, disk Disk, architecture string) (Disk, field.ErrorList) {
	var problems field.ErrorList
	disk.Name, disk.Bus, disk.Serial, disk.Tag = d.Name, defaultBus(architecture), d.Serial, d.Tag
	bus := kubevirt.DiskBus("")
	contradiction := CheckDevice(at, d)
	switch k := disk.Source.Kind(); {
	case k.hidden():
		contradiction = refused(at, "volume %q can't be a disk", d.Name)
	case k.FilesOnly:
		contradiction = refused(at, "volume %q can't be a disk; name it in filesystems", d.Name)
	}
	switch {
	case contradiction != nil:
		problems = append(problems, contradiction)
	case d.CDRom != nil:
		disk.CDROM, disk.ReadOnly, disk.Bus, bus = true, true, driveBus(architecture), d.CDRom.Bus
		disk.Tray = string(d.CDRom.Tray)
	case d.LUN != nil:
		problems = append(problems, disk.readLUN(at.Child("lun"), d.LUN)...)
	case d.Disk != nil:
		disk.ReadOnly, bus = disk.ReadOnly || d.Disk.ReadOnly, d.Disk.Bus
		disk.PCI = PCIAddress(d.Disk.PciAddress)
	}
	if bus != "" {
		disk.Bus = Bus(bus)
	}
	if disk.PCI != "" && disk.Bus != BusVirtio {
		problems = append(problems, refused(at.Child("disk", "pciAddress"), "goes with bus virtio"))
	}
	if disk.Source == SourceMetrics {
		problems = append(problems, disk.readMetrics(at, bus)...)
	}
	// QEMU has no read-only disk on SATA. cloud-init finds its seed by the label, also in a CD-ROM drive.
	if disk.Bus == BusSATA && !disk.CDROM && disk.Source.Kind().Fixed {
		disk.CDROM, disk.ReadOnly = true, true
	}
	if disk.Bus == BusSATA && !disk.CDROM && disk.ReadOnly {
		problems = append(problems, refused(at.Child("disk", "bus"), "a read-only disk on bus sata must be a cdrom; use virtio or scsi"))
	}
	if d.BootOrder != nil {
		disk.BootOrder = *d.BootOrder
	}
	if disk.LUN && d.Serial != "" {
		problems = append(problems, refused(at.Child("serial"), "a lun has the serial number of its device; leave it out"))
	}
	if disk.Bus != BusSCSI && len(d.Serial) > maxShortSerial {
		problems = append(problems, invalid(at.Child("serial"), d.Serial,
			"a disk on bus %s has at most %d characters of it", disk.Bus, maxShortSerial))
	}
	problems = append(problems, disk.readBlockSize(at.Child("blockSize"), d.BlockSize)...)
	problems = append(problems, disk.readIO(at, d)...)
	return disk, append(problems, disk.readShareable(at, d)...)
}

// readShareable reads whether other VMs write the volume, too. The node's cache would
// hide from one VM what another one writes.
func (disk *Disk) readShareable(at *field.Path, d kubevirt.Disk) field.ErrorList {
	switch disk.Shareable = isOr(d.Shareable, false); {
	case !disk.Shareable:
	case disk.Source != SourcePVC && disk.Network == nil && disk.Source != "":
		return field.ErrorList{refused(at.Child("shareable"),
			"what a VM writes to such a volume is its own, and no other's to share; leave it out")}
	case disk.Cache == "":
		disk.Cache = string(kubevirt.CacheNone)
	case disk.Cache == string(kubevirt.CacheWriteBack):
		return field.ErrorList{invalid(at.Child("cache"), disk.Cache, "a shareable disk needs none, the default, or writethrough")}
	}
	return nil
}

// readMetrics wants a disk with metrics on virtio, as KubeVirt does: a CD-ROM drive has
// other blocks than programs read.
func (disk *Disk) readMetrics(at *field.Path, bus kubevirt.DiskBus) field.ErrorList {
	if disk.LUN || disk.CDROM || bus != "" && Bus(bus) != BusVirtio {
		return field.ErrorList{refused(at, "downwardMetrics needs a disk on bus virtio")}
	}
	disk.Bus, disk.ReadOnly = BusVirtio, true
	return nil
}

// readLUN reads a disk whose SCSI commands the node's device answers.
func (disk *Disk) readLUN(at *field.Path, l *kubevirt.LunTarget) field.ErrorList {
	disk.LUN, disk.ReadOnly, disk.Bus = true, disk.ReadOnly || l.ReadOnly, BusSCSI
	switch {
	case disk.Source == SourceRBD:
		return field.ErrorList{refused(at, "an RBD image takes no SCSI commands; use disk")}
	case disk.Source != SourcePVC && disk.Source != SourceISCSI && disk.Source != "":
		return field.ErrorList{refused(at, "needs a PVC of volumeMode Block; use disk")}
	case disk.Host != "" && !disk.Block:
		return field.ErrorList{refused(at, "needs a PVC of volumeMode Block, and this one is a file system; use disk")}
	}
	return nil
}

// readIO reads how the node reads and writes a disk. As with KubeVirt, an error
// stops the guest where nothing else is said. librbd's cache confirms writes before the
// cluster does, and takes memory, so an RBD image has none where nothing else is said.
func (disk *Disk) readIO(at *field.Path, d kubevirt.Disk) field.ErrorList {
	disk.Cache, disk.ErrorPolicy = string(d.Cache), string(kubevirt.DiskErrorPolicyStop)
	if disk.Cache == "" && disk.Source == SourceRBD {
		disk.Cache = string(kubevirt.CacheNone)
	}
	if d.ErrorPolicy != nil && *d.ErrorPolicy != "" {
		disk.ErrorPolicy = string(*d.ErrorPolicy)
	}
	if d.IO != "default" {
		disk.IO = string(d.IO)
	}
	if d.IO != kubevirt.IONative {
		return nil
	}
	if d.Cache != "" && d.Cache != kubevirt.CacheNone {
		return field.ErrorList{invalid(at.Child("io"), string(d.IO),
			"goes past the node's cache, and cache is %s; use threads, or cache none", d.Cache)}
	}
	disk.Cache = string(kubevirt.CacheNone)
	return nil
}
