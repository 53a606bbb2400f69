package vmspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Hotplug returns the disk that a running VM gets: a disk of KubeVirt's, as JSON, on the
// volume of its name that a container of another pod mounts, or has as a device. As with
// KubeVirt its bus is scsi, and its serial number its name, if it says nothing else and the
// name fits. A CD-ROM is a medium for the drive of its name. The disk has no target yet. If the volume is
// an image, the guest can only read the disk, which is at a path there; "" is the only one. Size is that of the disk in
// bytes that the node makes in a file system without one; 0 makes none. Preallocated says that the volume's storage is
// allocated in advance; it is ignored for a disk that the guest does not write there.
func Hotplug(disk []byte, path string, size int64, preallocated bool, container *runtimeapi.ContainerConfig) (Disk, error) {
	mounts, err := readMounts(container)
	if err != nil {
		return Disk{}, err
	}
	spec, err := hotplugSpec(disk, map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "a"}}) // which only the cluster knows
	if err != nil {
		return Disk{}, err
	}
	one := spec.Domain.Devices.Disks[0]
	m, found := mounts.find(one.Name)
	if !found {
		return Disk{}, fmt.Errorf("disk %q: container %s has no volume of this name; mount it at a path that ends in /%s",
			one.Name, excerpt(container.GetMetadata().GetName()), one.Name)
	}
	if m.image != "" {
		if spec, err = hotplugSpec(disk, map[string]any{"containerDisk": map[string]any{"image": m.image, "path": path}}); err != nil {
			return Disk{}, err
		}
	}
	root := field.NewPath("spec")
	all, problems := readVolumes(root, spec, request{mounts: &mountsOf{m}, container: container.GetMetadata().GetName()})
	at := root.Child("domain", "devices", "disks")
	disks, p := disks(at, spec.Domain.Devices.Disks, all, bootOrder{}, AMD64)
	problems = append(problems, p...)
	if len(problems) == 0 {
		problems = checkHotplug(at.Index(0), one, disks[0])
	}
	if len(problems) > 0 {
		return Disk{}, hotplugError(problems)
	}
	if err := blankOf(one.Name, size).apply(disks); err != nil {
		return Disk{}, err
	}
	d := disks[0]
	if d.CDROM {
		d.BootOrder = 0 // the place is that of the drive
	}
	if d.Registry() {
		d.Mode = ModeFile
	}
	d.Preallocated = preallocated && d.Allocatable()
	if !d.LUN && !d.CDROM && (d.Bus == BusSCSI || len(d.Name) <= maxShortSerial) {
		d.Serial = cmp.Or(d.Serial, d.Name)
	}
	return d, nil
}

// hotplugSpec returns a VMI with the disk alone, whose fields are known and which has a bus, on a volume that has
// the fields of its kind.
func hotplugSpec(text []byte, volume map[string]any) (*kubevirt.VirtualMachineInstanceSpec, error) {
	var disk map[string]any
	if err := json.Unmarshal(text, &disk); err != nil {
		return nil, fmt.Errorf("the disk is not JSON as expected: %s", excerpt(err.Error()))
	}
	if disk == nil {
		return nil, errors.New("there is no disk")
	}
	if disk["disk"] == nil && disk["lun"] == nil && disk["cdrom"] == nil {
		disk["disk"] = map[string]any{}
	}
	if device, ok := disk["disk"].(map[string]any); ok && device["bus"] == nil {
		device["bus"] = BusSCSI
	}
	volume["name"] = disk["name"]
	whole, err := json.Marshal(map[string]any{
		"domain":  map[string]any{"devices": map[string]any{"disks": []any{disk}}},
		"volumes": []any{volume},
	})
	if err != nil {
		return nil, err
	}
	spec, problems := DecodeVMI(whole)
	if len(problems) > 0 {
		return nil, hotplugError(problems)
	}
	return spec, nil
}

// checkHotplug refuses what a disk can have only from its VM's start. Is is what the node makes of it.
func checkHotplug(at *field.Path, d kubevirt.Disk, is Disk) field.ErrorList {
	var problems field.ErrorList
	add := func(wrong bool, child, why string) {
		if wrong {
			problems = append(problems, refused(at.Child(child), "%s", why))
		}
	}
	add(d.Disk != nil && d.Disk.Bus != kubevirt.DiskBusSCSI && d.Disk.Bus != kubevirt.DiskBusVirtio, "disk",
		"a disk that is added while the VM runs needs bus scsi or virtio")
	add(is.Registry() && !is.ReadOnly, "disk", "a registry disk that is added while the VM runs needs readonly: true")
	add(d.BootOrder != nil && !is.CDROM, "bootOrder", "goes with a disk that the VM starts with")
	add(d.DedicatedIOThread != nil && *d.DedicatedIOThread, "dedicatedIOThread", "goes with a disk that the VM starts with")
	add(d.BlockSize != nil && d.BlockSize.MatchVolume != nil, "blockSize", "use custom for a disk that is added while the VM runs")
	return problems
}

func hotplugError(problems field.ErrorList) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s", fields.Sentence(p)))
	}
	return capped(errs)
}
