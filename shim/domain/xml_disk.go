package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func disks(desc Description) ([]libvirtxml.DomainDisk, error) {
	if len(desc.Disks) != len(desc.Spec.Disks) {
		return nil, fmt.Errorf("%d disks for %d in the spec", len(desc.Disks), len(desc.Spec.Disks))
	}
	var all []libvirtxml.DomainDisk
	for i, spec := range desc.Spec.Disks {
		if len(desc.Disks[i].Layers) == 0 && spec.Source != vmspec.SourceDrive {
			return nil, fmt.Errorf("disk %s has no content", spec.Name)
		}
		d, err := placed(spec, disk(spec, desc.Disks[i].Layers))
		if err != nil {
			return nil, err
		}
		switch {
		case spec.Bus == vmspec.BusVirtio && desc.Spec.Transitional:
			d.Model = transitional
		case spec.Bus == vmspec.BusUSB:
			d.Address = usbDiskAddress(desc, spec)
		}
		if d.Driver.ErrorPolicy == "" {
			d.Driver.ErrorPolicy = desc.Disks[i].ErrorPolicy
		}
		all = append(all, d)
	}
	return all, nil
}

// placed gives a disk the address that its spec implies.
func placed(spec vmspec.Disk, d libvirtxml.DomainDisk) (libvirtxml.DomainDisk, error) {
	unit, err := vmspec.TargetUnit(spec.Target)
	if err != nil {
		return d, fmt.Errorf("disk %s: %w", spec.Name, err)
	}
	if d.Address, err = pciAddress(spec.PCI); err != nil {
		return d, fmt.Errorf("disk %s: %w", spec.Name, err)
	}
	if spec.Bus == vmspec.BusSCSI {
		d.Address = &libvirtxml.DomainAddress{Drive: address(uint(unit))}
	}
	return d, nil
}

// disk describes a disk by its layers; an empty drive has none.
func disk(spec vmspec.Disk, layers []Layer) libvirtxml.DomainDisk {
	var top Layer
	if len(layers) > 0 {
		top = layers[0]
	}
	d := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{
			Name: "qemu", Type: top.Format, Cache: spec.Cache, IO: spec.IO, ErrorPolicy: spec.ErrorPolicy,
		},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{}}, // only the disk's type
		Target: &libvirtxml.DomainDiskTarget{Dev: spec.Target, Bus: string(spec.Bus)},
		Serial: spec.Serial,
		Alias:  &libvirtxml.DomainAlias{Name: diskAlias(spec)},
	}
	if len(layers) > 0 {
		d.Source, d.BackingStore = source(top), backing(layers[1:])
	}
	switch {
	case spec.CDROM:
		d.Device = "cdrom"
		d.Target.Tray = spec.Tray
	case spec.LUN:
		d.Device = "lun"
	}
	if spec.CDROM || spec.ReadOnly || top.ReadOnly {
		d.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	} else if spec.Preallocated {
		d.Driver.Discard = "ignore" // what is freed would have to be allocated again
	} else {
		// Ranges that the guest frees are freed in the overlay too.
		d.Driver.Discard = "unmap"
	}
	if b := spec.BlockSize; b.Logical > 0 {
		d.BlockIO = &libvirtxml.DomainDiskBlockIO{LogicalBlockSize: uint(b.Logical), PhysicalBlockSize: uint(b.Physical)}
	}
	if spec.Shareable {
		d.Shareable = &libvirtxml.DomainDiskShareable{}
	}
	if spec.IOThread > 0 {
		thread := uint(spec.IOThread)
		d.Driver.IOThread = &thread
	}
	if spec.Queues > 0 {
		queues := uint(spec.Queues)
		d.Driver.Queues = &queues
	}
	if spec.BootOrder > 0 {
		d.Boot = &libvirtxml.DomainDeviceBoot{Order: spec.BootOrder}
	}
	return d
}

func source(l Layer) *libvirtxml.DomainDiskSource {
	if l.ISCSI != nil {
		return &libvirtxml.DomainDiskSource{Network: l.ISCSI.source()}
	}
	if l.RBD != nil {
		return &libvirtxml.DomainDiskSource{Network: l.RBD.source()}
	}
	if l.Block {
		s := &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: l.Path}}
		if l.Length > 0 {
			s.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: "storage", Size: uint(l.Length)}}}
		}
		return s
	}
	return &libvirtxml.DomainDiskSource{
		File: &libvirtxml.DomainDiskSourceFile{File: l.Path, FDGroup: l.FDGroup},
	}
}

// backing returns the chain below a layer, up to an empty element at its end.
// Without that, libvirt reads the files' headers and opens the names in them.
func backing(layers []Layer) *libvirtxml.DomainDiskBackingStore {
	if len(layers) == 0 {
		return &libvirtxml.DomainDiskBackingStore{}
	}
	return &libvirtxml.DomainDiskBackingStore{
		Format:       &libvirtxml.DomainDiskFormat{Type: layers[0].Format},
		Source:       source(layers[0]),
		BackingStore: backing(layers[1:]),
	}
}

// address keeps SCSI disks on the VM's one controller: for the seventeenth name
// libvirt would add another, of a model that few guests support.
func address(unit uint) *libvirtxml.DomainAddressDrive {
	zero := uint(0)
	return &libvirtxml.DomainAddressDrive{Controller: &zero, Bus: &zero, Target: &zero, Unit: &unit}
}
