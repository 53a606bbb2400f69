package vmspec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// bootOrder holds the places in the boot order that devices have. Disks and network
// cards share one order.
type bootOrder map[uint]bool

// take refuses a place that another device has.
func (o bootOrder) take(at *field.Path, place uint) field.ErrorList {
	if place == 0 {
		return nil
	}
	if o[place] {
		return field.ErrorList{field.Duplicate(at.Child("bootOrder"), place)}
	}
	o[place] = true
	return nil
}

// setDisk makes one disk bootable where no device has a place in the boot order:
// the disk of the container's image, else the first disk, else the first CD-ROM. In
// a VM with PVCs the container's image is no better than other disks: its author did
// not choose it. A VM without such a disk boots its kernel, or nothing.
func (o bootOrder) setDisk(disks []Disk) {
	if len(o) > 0 {
		return
	}
	bootable := func(d Disk) bool { return !d.Source.Kind().Fixed }
	pvcs := slices.ContainsFunc(disks, Disk.OnVolume)
	for _, fits := range []func(Disk) bool{
		func(d Disk) bool { return d.Source == SourceImage && !pvcs },
		func(d Disk) bool { return bootable(d) && !d.CDROM },
		bootable,
	} {
		if i := slices.IndexFunc(disks, fits); i >= 0 {
			disks[i].BootOrder = 1
			return
		}
	}
}
