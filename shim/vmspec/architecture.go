package vmspec

import (
	"cmp"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// The architectures of guests, by Go's names, which are also KubeVirt's.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// ArchitectureLabel begins the label of a node that runs guests of an architecture, whose name follows.
const ArchitectureLabel = "architecture.node.nodevirt.io/"

// Architectures takes the architectures that a VM can have.
var Architectures = fields.OneOf(AMD64, ARM64)

// Arch returns the architecture of the guest's processor.
func (s Spec) Arch() string { return cmp.Or(s.Architecture, AMD64) }

// architecture returns what [Spec.Architecture] holds for an architecture.
func architecture(name string) string {
	if name == AMD64 {
		return ""
	}
	return name
}

// nativeFirmware is that of a pod that describes no VM: its image is for the node.
func nativeFirmware() Firmware {
	if runtime.GOARCH == ARM64 {
		return Firmware{UEFI: &UEFI{}}
	}
	return Firmware{}
}

// driveBus is the bus of the CD-ROM drives of an architecture: virtio has none.
func driveBus(architecture string) Bus {
	if architecture == ARM64 {
		return BusSCSI
	}
	return BusSATA
}

// MachineOf returns the machine type of a VM that names none.
func MachineOf(architecture string) string {
	if architecture == ARM64 {
		return armMachine
	}
	return defaultMachine
}

// defaultBus returns the bus of a disk that names none.
func defaultBus(architecture string) Bus {
	if architecture == ARM64 {
		return BusVirtio
	}
	return BusSATA
}

// IsARMMachine reports whether a machine type is one of arm64.
func IsARMMachine(name string) bool {
	return name == armMachine || strings.HasPrefix(name, armMachine+"-")
}

// checkArchitecture returns what guests of the VM's architecture do not have.
func (s *Spec) checkArchitecture(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	machine := domain.Child("machine", "type")
	if arm := IsARMMachine(s.Machine); arm != (s.Arch() == ARM64) {
		return field.ErrorList{invalid(machine, s.Machine, "is no machine of architecture %s", s.Arch())}
	}
	if s.Arch() != ARM64 {
		return nil
	}
	devices, features, cpu := domain.Child("devices"), domain.Child("features"), domain.Child("cpu")
	var problems field.ErrorList
	refuse := func(is bool, at *field.Path, instead string) {
		if is {
			problems = append(problems, refused(at, "architecture arm64 does not support it; %s", instead))
		}
	}
	const leave = "leave it out"
	f := cmp.Or(d.Firmware, &kubevirt.Firmware{})
	refuse(f.Bootloader != nil && f.Bootloader.BIOS != nil, domain.Child("firmware", "bootloader", "bios"), "use efi")
	refuse(s.Firmware.UEFI != nil && s.Firmware.UEFI.SecureBoot, domain.Child("firmware", "bootloader", "efi", "secureBoot"), "use false")
	refuse(f.ACPI != nil, domain.Child("firmware", "acpi"), leave)
	refuse(s.CPU.Model != "" && s.CPU.Model != kubevirt.CPUModeHostPassthrough, cpu.Child("model"), "use host-passthrough")
	refuse(s.CPU.MaxSockets > 0, cpu.Child("maxSockets"), leave)
	for i, disk := range s.Disks {
		at := devices.Child("disks")
		if i < len(d.Devices.Disks) { // the others are of volumes without a disk
			at = at.Index(i)
		}
		refuse(disk.Bus == BusSATA, at, "use bus virtio or scsi")
	}
	refuse(s.Watchdog != "", devices.Child("watchdog"), leave)
	refuse(s.Sound != "", devices.Child("sound"), leave)
	refuse(s.Video != "" && s.Video != "virtio" && s.Video != "ramfb", devices.Child("video", "type"), "use virtio or ramfb")
	refuse(len(d.Devices.PanicDevices) > 0, devices.Child("panicDevices"), leave)
	refuse(s.SMM, features.Child("smm"), leave)
	refuse(s.Board != (Board{}), features, "leave out hyperv, hypervPassthrough, kvm, pvspinlock and apic.endOfInterrupt")
	refuse(len(s.Clock.Timers) > 0, domain.Child("clock", "timer"), leave)
	return problems
}
