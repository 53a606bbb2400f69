package vmspec

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	defaultMachine   = "q35"
	armMachine       = "virt"
	defaultInterface = "default"
	podDevice        = "eth0"
	defaultModel     = "virtio"
	transitional     = "virtio-transitional"
)

// checkVMI returns the problems that the field table can't find: missing fields,
// and fields that contradict each other. It translates the VMI without limits and
// drops the result, so that checks and translation share their code.
func checkVMI(root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	_, problems := translate(root, vmi, request{})
	return problems
}

// fromVMI returns the VM that a VMI describes, within a container's limits.
func fromVMI(w wishes, r request) (Spec, error) {
	t, problems := translate(field.NewPath("spec"), w.vmi, r)
	err := annotationError(problems)
	if err != nil {
		return Spec{}, err
	}
	if err := t.checkCPUSet(r); err != nil {
		return Spec{}, err
	}
	if t.Disks, err = applyOrigins(t.Disks, w.origins); err != nil {
		return Spec{}, err
	}
	if err := w.onVolumes(t.Disks); err != nil {
		return Spec{}, err
	}
	if t.Interfaces, err = w.bindings.apply(t.Interfaces); err != nil {
		return Spec{}, err
	}
	if t.Memory == 0 {
		r.limits.added = t.AddedOverhead
		if t.Memory, err = r.memory(); err != nil {
			return Spec{}, err
		}
	}
	if err := t.checkMaxGuest(); err != nil {
		return Spec{}, err
	}
	return t.withSeed(w, r)
}

// checkSeed returns the contradictions between the annotations and the VMI's volumes.
func checkSeed(w wishes) error {
	if w.vmi == nil {
		return nil
	}
	t, _ := translate(field.NewPath("spec"), w.vmi, request{}) // passed checkVMI
	_, err := t.withSeed(w, request{})
	disks, originErr := applyOrigins(t.Disks, w.origins)
	if originErr != nil {
		return errors.Join(err, originErr)
	}
	return errors.Join(err, w.onVolumes(disks), w.modes.apply(disks))
}

// translation is the VM that a VMI describes, without the seed, which depends on
// annotations too.
type translation struct {
	Spec
	cloudInit *cloudInit // nil without such a volume
	keys      []MountedSecret
}

// withSeed returns the VM with the seed of its volume and the annotations.
func (t translation) withSeed(w wishes, r request) (Spec, error) {
	spec := t.Spec
	w, err := w.withCloudInit(t.cloudInit)
	if err != nil || !w.seeded {
		return spec, err
	}
	if t.cloudInit == nil {
		seed := seedDisk()
		if slices.ContainsFunc(spec.Disks, func(d Disk) bool { return d.Name == seed.Name }) {
			return Spec{}, fmt.Errorf("%s: the disk name %q is taken by the seed of the "+
				"cloud-init annotations; rename the disk, or add a cloudInitNoCloud volume",
				AnnotationVMI, seed.Name)
		}
		spec.Disks = append(spec.Disks, seed)
	}
	if spec.Seed, err = w.seed(r.instance, spec.Hostname); err != nil || t.cloudInit == nil {
		return spec, err
	}
	if t.cloudInit.source == SourceConfigDrive {
		meta := w.wholeMetaData(r.instance, spec.Hostname)
		if spec.Seed.MetaData, err = meta.configDrive(spec.Firmware.UUID); err != nil {
			return Spec{}, err
		}
	}
	spec.Seed.KeysFrom = t.keys
	if t.cloudInit.userDataSecret {
		spec.Seed.UserDataFrom = t.cloudInit.folder
	}
	if t.cloudInit.networkSecret {
		spec.Seed.NetworkConfigFrom = t.cloudInit.folder
	}
	return spec, nil
}

func translate(
	root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, r request,
) (translation, field.ErrorList) {
	domain := root.Child("domain")
	cpu, problems := processor(domain, &vmi.Domain, r)
	added, locked := reservedOverhead(vmi.Domain.Memory)
	r.limits.added = added
	memory, p := guestMemory(domain, &vmi.Domain, r)
	problems = append(problems, p...)
	firmware, p := readFirmware(domain.Child("firmware"), vmi, r)
	problems = append(problems, p...)
	volumes, p := readVolumes(root, vmi, r)
	problems = append(problems, p...)
	firmware.Board = kubevirtBoard()
	firmware.Tables, p = volumes.acpiTables(domain.Child("firmware", "acpi"), vmi.Domain.Firmware)
	problems = append(problems, p...)
	filesystems, p := volumes.filesystems(domain.Child("devices", "filesystems"), vmi.Domain.Devices.Filesystems)
	problems = append(problems, p...)
	access, p := readCredentials(root.Child("accessCredentials"), vmi.AccessCredentials, &volumes)
	problems = append(problems, p...)
	boot := bootOrder{}
	disks, p := disks(domain.Child("devices", "disks"), vmi.Domain.Devices.Disks, volumes, boot, vmi.Architecture)
	problems = append(problems, p...)
	interfaces, p := interfaces(root, vmi, cpu.Sockets*cpu.Cores*cpu.Threads, boot)
	problems = append(problems, p...)
	boot.setDisk(disks)
	hosts, p := hostDevices(root, vmi)
	problems = append(problems, p...)
	machine := MachineOf(vmi.Architecture)
	if m := vmi.Domain.Machine; m != nil && m.Type != "" {
		machine = m.Type
	}
	name := vmi.Hostname
	if name == "" {
		name = r.hostname
	}
	spec := Spec{
		AddedOverhead: added,

		CPU:            cpu,
		Memory:         memory,
		HugePage:       hugePage(&vmi.Domain),
		LockMemory:     locked,
		Machine:        machine,
		Architecture:   architecture(vmi.Architecture),
		Board:          readBoard(vmi.Domain.Features),
		Clock:          readClock(vmi.Domain.Clock),
		Firmware:       firmware,
		Disks:          disks,
		Filesystems:    filesystems,
		Interfaces:     interfaces,
		HostDevices:    hosts,
		Hostname:       name,
		Subdomain:      vmi.Subdomain,
		Credentials:    access.byAgent,
		EndOnReboot:    vmi.Domain.RebootPolicy != nil && *vmi.Domain.RebootPolicy == kubevirt.RebootPolicyTerminate,
		State:          PersistentState(vmi),
		LaunchSecurity: launchSecurity(vmi.Domain.LaunchSecurity),
		StartPaused:    vmi.StartStrategy != nil && *vmi.StartStrategy == kubevirt.StartStrategyPaused,
	}
	if f := vmi.Domain.Features; f != nil {
		spec.NoACPI = !isOr(f.ACPI.Enabled, true)
		spec.SMM = f.SMM != nil && isOr(f.SMM.Enabled, true)
	}
	spec.Chassis = chassis(vmi.Domain.Chassis)
	problems = append(problems, spec.checkFirmware(domain)...)
	problems = append(problems, spec.ioThreads(domain, &vmi.Domain)...)
	problems = append(problems, spec.dedicated(domain, &vmi.Domain)...)
	problems = append(problems, spec.maximums(domain, &vmi.Domain)...)
	if isOr(vmi.Domain.Devices.BlockMultiQueue, false) {
		spec.queueDisks()
	}
	problems = append(problems, spec.devices(domain.Child("devices"), vmi.Domain.Devices)...)
	problems = append(problems, spec.checkLaunchSecurity(domain, &vmi.Domain)...)
	problems = append(problems, spec.checkArchitecture(domain, &vmi.Domain)...)
	return translation{Spec: spec, cloudInit: volumes.cloudInit, keys: access.seeded}, problems
}
