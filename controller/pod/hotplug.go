package pod

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// Hotpluggable reports whether a volume says that running VMs may get and lose it, as they
// always do with those of memory dumps.
func Hotpluggable(v *kubevirt.Volume) bool {
	return v.MemoryDump != nil || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable ||
		v.DataVolume != nil && v.DataVolume.Hotpluggable
}

// Given returns the names of the hot-plugged volumes that an instance has by its VirtualMachine's template.
func Given(vmi *kubevirt.VirtualMachineInstance) []string {
	return strings.FieldsFunc(vmi.Annotations[AnnotationHotplugged], isComma)
}

// GivenImage reports whether a volume is a registry disk that the VM of an instance gets by the template while it runs.
func GivenImage(vmi *kubevirt.VirtualMachineInstance, v *kubevirt.Volume) bool {
	return v.ContainerDisk != nil && slices.Contains(Given(vmi), v.Name) && !StartedWith(vmi, v.Name)
}

// CheckHotplug returns why no running VM can get a disk; nil if one can. A CD-ROM drive is
// there from the start of its VM, and its medium comes and goes.
func CheckHotplug(d *kubevirt.Disk) error {
	switch {
	case d.Disk == nil && d.LUN == nil:
		return errors.New("requires diskDevice of type 'disk' or 'lun' to be used")
	case d.Disk != nil && d.Disk.Bus != kubevirt.DiskBusSCSI && d.Disk.Bus != kubevirt.DiskBusVirtio:
		return errors.New("requires bus to be 'scsi' or 'virtio'. [" + string(d.Disk.Bus) + "] is not permitted")
	case d.LUN != nil && d.LUN.Bus != "" && d.LUN.Bus != kubevirt.DiskBusSCSI:
		return errors.New("requires bus to be 'scsi'. [" + string(d.LUN.Bus) + "] is not permitted")
	case d.BootOrder != nil:
		return errors.New("permits no bootOrder: a VM boots from disks that it starts with")
	case d.DedicatedIOThread != nil && *d.DedicatedIOThread:
		return errors.New("requires virtio bus for IOThreads")
	case d.BlockSize != nil && d.BlockSize.MatchVolume != nil:
		return errors.New("permits no blockSize.matchVolume; use custom")
	}
	return nil
}

// later reports whether a VM can start without the volume of a disk, and get it then.
func later(d *kubevirt.Disk) bool {
	return d.CDRom != nil && d.BootOrder == nil || CheckHotplug(d) == nil
}

// IsDrive reports whether a spec has a CD-ROM drive for a volume.
func IsDrive(s *kubevirt.VirtualMachineInstanceSpec, volume string) bool {
	d := DiskOf(s, volume)
	return d != nil && d.CDRom != nil
}

// DiskOf returns the disk of a volume; nil if it has none.
func DiskOf(s *kubevirt.VirtualMachineInstanceSpec, volume string) *kubevirt.Disk {
	disks := s.Domain.Devices.Disks
	i := slices.IndexFunc(disks, func(d kubevirt.Disk) bool { return d.Name == volume })
	if i < 0 {
		return nil
	}
	return &disks[i]
}

// VolumeOf returns the volume of a name; nil if there is none.
func VolumeOf(s *kubevirt.VirtualMachineInstanceSpec, name string) *kubevirt.Volume {
	i := slices.IndexFunc(s.Volumes, func(v kubevirt.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Volumes[i]
}

// StartedWith reports whether an instance's VM, which runs, has a volume since its start.
func StartedWith(vmi *kubevirt.VirtualMachineInstance, volume string) bool {
	return slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool {
		return s.Name == volume && s.HotplugVolume == nil
	})
}

// Hotplugged returns the volumes that an instance's VM can get once it runs: the hotpluggable
// ones with a disk that a running VM can get. The VM starts with the first disk, unless the
// instance says what it boots from.
func Hotplugged(s *kubevirt.VirtualMachineInstanceSpec) []string {
	return hotplugged(s, func(v *kubevirt.Volume, _ *kubevirt.Disk) bool { return Hotpluggable(v) })
}

// Images returns the registry disks of a template that the VM of an instance, which did not start with them, can get
// while it runs: those that the guest only reads.
func Images(template *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) []string {
	given := Given(vmi)
	return hotplugged(template, func(v *kubevirt.Volume, d *kubevirt.Disk) bool {
		return v.ContainerDisk != nil && OnlyRead(d) && (VolumeOf(&vmi.Spec, v.Name) == nil || slices.Contains(given, v.Name))
	})
}

// Media returns the hotpluggable volumes of a template for the CD-ROM drives with which the VM of an instance has
// started empty, though it could boot from them: they change while it runs, as the media of other drives.
func Media(template *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) []string {
	given := Given(vmi)
	var all []string
	for i := range template.Volumes {
		v := &template.Volumes[i]
		d := DiskOf(template, v.Name)
		if template.Domain.Devices.DisableHotplug || d == nil || d.CDRom == nil || later(d) || !Hotpluggable(v) {
			continue
		}
		if VolumeOf(&vmi.Spec, v.Name) == nil || slices.Contains(given, v.Name) {
			all = append(all, v.Name)
		}
	}
	return all
}

// OnlyRead reports whether the guest can't write a disk, which is no LUN.
func OnlyRead(d *kubevirt.Disk) bool { return d.CDRom != nil || d.Disk != nil && d.Disk.ReadOnly }

// hotplugged returns the volumes of [Hotplugged] that are of a kind.
func hotplugged(s *kubevirt.VirtualMachineInstanceSpec, of func(*kubevirt.Volume, *kubevirt.Disk) bool) []string {
	if off := s.Domain.Devices.DisableHotplug; off {
		return nil
	}
	var all []string
	for i := range s.Volumes {
		v := &s.Volumes[i]
		d := DiskOf(s, v.Name)
		if d == nil || !later(d) || !of(v, d) {
			continue
		}
		if d == &s.Domain.Devices.Disks[0] && !saysBoot(s) {
			continue
		}
		all = append(all, v.Name)
	}
	return all
}

// Dumps returns the volumes for memory dumps, which no VM starts with.
func Dumps(s *kubevirt.VirtualMachineInstanceSpec) []string {
	var all []string
	for _, v := range s.Volumes {
		if v.MemoryDump != nil {
			all = append(all, v.Name)
		}
	}
	return all
}

// saysBoot reports whether an instance says what its VM boots from.
func saysBoot(s *kubevirt.VirtualMachineInstanceSpec) bool {
	return s.Domain.Firmware != nil && s.Domain.Firmware.KernelBoot != nil ||
		slices.ContainsFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.BootOrder != nil }) ||
		slices.ContainsFunc(s.Domain.Devices.Interfaces, func(i kubevirt.Interface) bool { return i.BootOrder != nil })
}

// maxLater is the number of disks on virtio that a VM gets once it runs: each VM has ports for
// so many. It starts with more of them.
const maxLater = 3

// AfterStart returns the volumes that an instance's VM, if it starts now, gets once it runs.
func AfterStart(s *kubevirt.VirtualMachineInstanceSpec) []string {
	onPorts := 0
	return slices.DeleteFunc(append(Hotplugged(s), Dumps(s)...), func(name string) bool {
		d := DiskOf(s, name)
		if d == nil {
			return false
		}
		if d.Disk == nil || d.Disk.Bus != kubevirt.DiskBusVirtio {
			return false
		}
		onPorts++
		return onPorts > maxLater
	})
}

// AtStart returns an instance without the volumes that its VM gets once it runs, and without absent network cards.
func AtStart(vmi *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	vmi = without(vmi, AfterStart(&vmi.Spec))
	if absent := AbsentCards(&vmi.Spec); len(absent) > 0 {
		vmi = vmi.DeepCopy()
		RemoveCards(&vmi.Spec, absent...)
	}
	return vmi
}

// Plugged returns the volumes that an instance's VM has not started with: the hotpluggable
// ones that the VM's pod does not have, and registry disks that the VM has got since.
func Plugged(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod) []string {
	var all []string
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		may := Hotpluggable(v) || GivenImage(vmi, v)
		if may && !slices.ContainsFunc(own.Spec.Volumes, func(has corev1.Volume) bool { return has.Name == v.Name }) {
			all = append(all, v.Name)
		}
	}
	return all
}

// AsStarted returns an instance without the volumes that its VM has not started with.
func AsStarted(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod) *kubevirt.VirtualMachineInstance {
	return without(vmi, Plugged(vmi, own))
}

// AsMoved returns an instance whose next pod has just the volumes with which its VM has started in a
// pod: the others move with the guest. The next pod has the networks of all cards that the VM has.
func AsMoved(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod) *kubevirt.VirtualMachineInstance {
	vmi = AsStarted(vmi, own).DeepCopy()
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil {
			v.PersistentVolumeClaim.Hotpluggable = false
		}
		if v.DataVolume != nil {
			v.DataVolume.Hotpluggable = false
		}
	}
	has := PluggedCards(own)
	RemoveCards(&vmi.Spec, slices.DeleteFunc(CardsToPlug(vmi, own), func(name string) bool {
		return slices.ContainsFunc(has, func(c PluggedCard) bool { return c.Name == name })
	})...)
	return vmi
}

// Only returns an instance with one volume and its disk, and the empty drives.
func Only(vmi *kubevirt.VirtualMachineInstance, volume string) *kubevirt.VirtualMachineInstance {
	var others []string
	for _, v := range vmi.Spec.Volumes {
		if v.Name != volume {
			others = append(others, v.Name)
		}
	}
	return without(vmi, others)
}

func without(vmi *kubevirt.VirtualMachineInstance, volumes []string) *kubevirt.VirtualMachineInstance {
	if len(volumes) == 0 {
		return vmi
	}
	vmi = vmi.DeepCopy()
	Remove(&vmi.Spec, volumes...)
	return vmi
}

// Remove removes volumes and their disks from an instance's spec. CD-ROM drives stay, empty.
func Remove(s *kubevirt.VirtualMachineInstanceSpec, volumes ...string) {
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return slices.Contains(volumes, v.Name) })
	s.Domain.Devices.Disks = slices.DeleteFunc(s.Domain.Devices.Disks,
		func(d kubevirt.Disk) bool { return d.CDRom == nil && slices.Contains(volumes, d.Name) })
}
