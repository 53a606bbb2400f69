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

// disk is what a --disk flag asks for.
type disk struct {
	kubevirt.Disk
	image    string             // of a registry disk
	path     string             // of the disk in that image
	size     *resource.Quantity // of an empty disk
	optional bool               // something is said of it beyond where it comes from
}

// mountDir is where the image volumes of disks are mounted, as far as the CRI is
// concerned.
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
		if bus == kubevirt.DiskBusVirtio { // which no CD is on, so that it was not said
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

// volume is the disk's, in a VMI.
func (d disk) volume() kubevirt.Volume {
	v := kubevirt.Volume{Name: d.Name}
	if d.size != nil {
		v.EmptyDisk = &kubevirt.EmptyDiskSource{Capacity: *d.size}
	} else {
		v.ContainerDisk = &kubevirt.ContainerDiskSource{Image: d.image, Path: d.path}
	}
	return v
}

// mount is the disk's image volume, of an image with that id.
func (d disk) mount(id string) *runtimeapi.Mount {
	return &runtimeapi.Mount{
		ContainerPath: path.Join(mountDir, d.Name), Readonly: true,
		Image: &runtimeapi.ImageSpec{Image: id, UserSpecifiedImage: d.image},
	}
}

// ownDisk is the name of the disk of the VM's own image.
const ownDisk = "disk"

// vmi describes the machine, where the pod alone would not make it: it is that of
// a pod without one, with a display or with disks of which something is said.
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
		last := uint(1 << 16) // behind those that were given one
		devices.Disks[0].BootOrder = &last
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("describe the machine: %w", err)
	}
	return string(text), nil
}
