package run

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// disk is the value of a --disk flag.
type disk struct {
	kubevirt.Disk
	image    string             // of a registry disk
	path     string             // of the disk in that image
	size     *resource.Quantity // of an empty disk
	optional bool               // the flag sets more than the source
}

// mountDir is the mount path of disks' image volumes in the CRI request.
const mountDir = "/disks"

const diskSyntax = "want IMAGE or size=QUANTITY, and after commas of name, path, bus, serial, boot, cache, io, errors " +
	"(each =VALUE), readonly, cdrom"

// readDisks reads --disk flags. A disk without a name is named after its image.
func readDisks(flags []string) ([]disk, error) {
	var all []disk
	taken := map[string]bool{ownDisk: true}
	for _, text := range flags {
		d, err := readDisk(text)
		if err != nil {
			return nil, fmt.Errorf("--disk %q: %w", text, err)
		}
		for n, base := 2, d.Name; !d.optional && taken[d.Name]; n++ {
			d.Name = base + "-" + strconv.Itoa(n)
		}
		if taken[d.Name] {
			return nil, fmt.Errorf("--disk %q: the VM has a disk of the name %s already: give this one another, with name=", text, d.Name)
		}
		taken[d.Name] = true
		all = append(all, d)
	}
	return all, nil
}

func readDisk(text string) (disk, error) {
	words := strings.Split(text, ",")
	var d disk
	target, cdrom := &kubevirt.DiskTarget{Bus: kubevirt.DiskBusVirtio}, false
	if words[0] != "" && !strings.HasPrefix(words[0], "size=") {
		d.image, words = words[0], words[1:]
	}
	for _, word := range words {
		key, value, valued := strings.Cut(word, "=")
		if flag := key == "readonly" || key == "cdrom"; flag == valued || valued && value == "" {
			return d, fmt.Errorf("%q: %s", word, diskSyntax)
		}
		d.optional = d.optional || key != "size"
		switch key {
		case "size":
			q, err := quantity("size", value, "10Gi")
			if err != nil {
				return d, err
			}
			d.size = &q
		case "name":
			d.Name = value
		case "path":
			d.path = path.Join("/disk", strings.TrimPrefix(value, "/disk"))
		case "bus":
			target.Bus = kubevirt.DiskBus(value)
		case "serial":
			d.Serial = value
		case "boot":
			order, err := strconv.ParseUint(value, 10, 16)
			if err != nil || order == 0 {
				return d, fmt.Errorf("boot=%q: want a number from 1", value)
			}
			n := uint(order)
			d.BootOrder = &n
		case "cache":
			d.Cache = kubevirt.DriverCache(value)
		case "io":
			d.IO = kubevirt.DriverIO(value)
		case "errors":
			policy := kubevirt.DiskErrorPolicy(value)
			d.ErrorPolicy = &policy
		case "readonly":
			target.ReadOnly = true
		case "cdrom":
			cdrom = true
		default:
			return d, fmt.Errorf("%q: %s", word, diskSyntax)
		}
	}
	if (d.image == "") == (d.size == nil) {
		return d, fmt.Errorf("%s", diskSyntax)
	}
	d.DiskDevice = kubevirt.DiskDevice{Disk: target}
	if cdrom {
		bus := target.Bus
		if bus == kubevirt.DiskBusVirtio { // not possible for a CD-ROM, so the flag did not set it
			bus = kubevirt.DiskBusSATA
		}
		d.DiskDevice = kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{Bus: bus}}
	}
	if d.Name == "" {
		d.Name = labelOf(d.image, "scratch")
	}
	if problems := validation.IsDNS1123Label(d.Name); len(problems) > 0 {
		return d, fmt.Errorf("name=%s: %s", d.Name, strings.Join(problems, "; "))
	}
	return d, nil
}

// volume returns the disk's volume in a VMI.
func (d disk) volume() kubevirt.Volume {
	v := kubevirt.Volume{Name: d.Name}
	if d.size != nil {
		v.EmptyDisk = &kubevirt.EmptyDiskSource{Capacity: *d.size}
	} else {
		v.ContainerDisk = &kubevirt.ContainerDiskSource{Image: d.image, Path: d.path}
	}
	return v
}

// mount returns the disk's image volume, for the image with that id.
func (d disk) mount(id string) *runtimeapi.Mount {
	return &runtimeapi.Mount{
		ContainerPath: path.Join(mountDir, d.Name), Readonly: true,
		Image: &runtimeapi.ImageSpec{Image: id, UserSpecifiedImage: d.image},
	}
}

// ownDisk is the name of the disk in the VM's own image.
const ownDisk = "disk"

// vmi returns the VMI of the annotation nodevirt.io/vmi, if the VM needs one for a
// display or for options of its disks. It is the VMI of a plain pod, with these
// additions.
func (o options) vmi(disks []disk) (string, error) {
	if !o.display && !slices.ContainsFunc(disks, func(d disk) bool { return d.optional || d.size != nil }) {
		return "", nil
	}
	spec := kubevirt.VirtualMachineInstanceSpec{
		Networks: []kubevirt.Network{*kubevirt.DefaultPodNetwork()},
		Volumes:  []kubevirt.Volume{{Name: ownDisk, VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{}}}},
	}
	devices := &spec.Domain.Devices
	devices.AutoattachGraphicsDevice = &o.display
	devices.Rng = &kubevirt.Rng{}
	devices.Interfaces = []kubevirt.Interface{*kubevirt.DefaultBridgeNetworkInterface()}
	devices.Disks = []kubevirt.Disk{{
		Name: ownDisk, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusVirtio}},
	}}
	for _, d := range disks {
		devices.Disks = append(devices.Disks, d.Disk)
		spec.Volumes = append(spec.Volumes, d.volume())
	}
	if boots := slices.ContainsFunc(disks, func(d disk) bool { return d.BootOrder != nil }); boots {
		last := uint(1 << 16) // after the disks with a given boot order
		devices.Disks[0].BootOrder = &last
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("describe the machine: %w", err)
	}
	return string(text), nil
}
