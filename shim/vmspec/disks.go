package vmspec

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// maxShortSerial is the room of virtio's and ATA's serial fields; QEMU cuts off
// the rest without a word.
const maxShortSerial = 20

// disks reads the drives of a VMI, in its order. As with KubeVirt every disk
// has the volume of its name and every volume a disk, and the bus is SATA where
// none is given.
func disks(at *field.Path, given []kubevirt.Disk, v volumes) ([]Disk, field.ErrorList) {
	var result []Disk
	var problems field.ErrorList
	used := map[string]bool{}
	orders := map[uint]bool{}
	for i, d := range given {
		at := at.Index(i)
		disk, p := readDisk(at, d)
		problems = append(problems, p...)
		switch {
		case d.Name == "":
			problems = append(problems, field.Required(at.Child("name"), ""))
		case used[d.Name]:
			problems = append(problems, field.Duplicate(at.Child("name"), d.Name))
		case v.paths[d.Name] == nil:
			problems = append(problems, invalid(at.Child("name"), d.Name, "no volume has this name"))
		}
		if disk.BootOrder > 0 && orders[disk.BootOrder] {
			problems = append(problems, field.Duplicate(at.Child("bootOrder"), disk.BootOrder))
		}
		used[d.Name], orders[disk.BootOrder] = true, true
		disk.Source = v.sources[d.Name]
		if disk.Source == SourceImage {
			disk.Path = v.imagePath
		}
		result = append(result, disk)
	}
	for _, name := range v.order {
		if !used[name] {
			problems = append(problems, refused(v.paths[name],
				"no disk has the name %q; add one to %s", name, at))
		}
	}
	bootFirst(result)
	return result, problems
}

func readDisk(at *field.Path, d kubevirt.Disk) (Disk, field.ErrorList) {
	var problems field.ErrorList
	disk := Disk{Name: d.Name, Bus: BusSATA, Serial: d.Serial, Cache: string(d.Cache)}
	bus := kubevirt.DiskBus("")
	switch {
	case d.Disk != nil && d.CDRom != nil:
		problems = append(problems, refused(at, "disk and cdrom: use one of them"))
	case d.CDRom != nil:
		disk.CDROM, disk.ReadOnly, bus = true, true, d.CDRom.Bus
	case d.Disk != nil:
		disk.ReadOnly, bus = d.Disk.ReadOnly, d.Disk.Bus
	}
	if bus != "" {
		disk.Bus = Bus(bus)
	}
	if d.BootOrder != nil {
		disk.BootOrder = *d.BootOrder
	}
	if disk.Bus != BusSCSI && len(d.Serial) > maxShortSerial {
		problems = append(problems, invalid(at.Child("serial"), d.Serial,
			"a disk on bus %s has at most %d characters of it", disk.Bus, maxShortSerial))
	}
	return disk, problems
}

// bootFirst makes the image's disk bootable where no disk was said to be.
func bootFirst(disks []Disk) {
	if slices.ContainsFunc(disks, func(d Disk) bool { return d.BootOrder > 0 }) {
		return
	}
	for i := range disks {
		if disks[i].Source == SourceImage {
			disks[i].BootOrder = 1
		}
	}
}

// volumes is what a VMI's volumes hold.
type volumes struct {
	order     []string
	paths     map[string]*field.Path
	sources   map[string]Source
	imagePath string // of the registry disk, below /disk; "" for the only one
	cloudInit *cloudInit
}

func readVolumes(at *field.Path, given []kubevirt.Volume) (volumes, field.ErrorList) {
	v := volumes{paths: map[string]*field.Path{}, sources: map[string]Source{}}
	var problems field.ErrorList
	for i, volume := range given {
		at := at.Index(i)
		if volume.Name == "" {
			problems = append(problems, field.Required(at.Child("name"), ""))
		} else if v.paths[volume.Name] != nil {
			problems = append(problems, field.Duplicate(at.Child("name"), volume.Name))
		}
		v.order = append(v.order, volume.Name)
		v.paths[volume.Name] = at
		problems = append(problems, v.read(at, volume)...)
	}
	for _, source := range v.sources {
		if source == SourceImage {
			return v, problems
		}
	}
	return v, append(problems, field.Required(at, "a VM needs a containerDisk to boot from"))
}

func (v *volumes) read(at *field.Path, volume kubevirt.Volume) field.ErrorList {
	registry, noCloud := volume.ContainerDisk, volume.CloudInitNoCloud
	switch {
	case registry == nil && noCloud == nil:
		return field.ErrorList{field.Required(at, "containerDisk or cloudInitNoCloud")}
	case registry != nil && noCloud != nil:
		return field.ErrorList{refused(at, "containerDisk and cloudInitNoCloud: use one of them")}
	case registry != nil:
		if v.has(SourceImage) {
			return field.ErrorList{refused(at.Child("containerDisk"),
				"one registry disk per VM is supported")}
		}
		v.sources[volume.Name] = SourceImage
		path, problem := belowDisk(at.Child("containerDisk", "path"), registry.Path)
		v.imagePath = path
		return problem
	}
	if v.has(SourceSeed) {
		return field.ErrorList{refused(at.Child("cloudInitNoCloud"),
			"one cloud-init volume per VM is supported")}
	}
	v.sources[volume.Name] = SourceSeed
	c, problems := readCloudInit(at.Child("cloudInitNoCloud"), noCloud)
	v.cloudInit = c
	return problems
}

func (v *volumes) has(source Source) bool {
	for _, s := range v.sources {
		if s == source {
			return true
		}
	}
	return false
}

// belowDisk turns KubeVirt's path in the image into one below its folder /disk.
func belowDisk(at *field.Path, path string) (string, field.ErrorList) {
	if path == "" {
		return "", nil
	}
	below, ok := strings.CutPrefix(path, "/disk/")
	if !ok {
		return "", field.ErrorList{invalid(at, path, "must be below /disk/")}
	}
	return below, nil
}
