package instancetype

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	instancetype "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// annotationsOfInstances is a field of both kinds.
func annotationsOfInstances() fields.Whole {
	return fields.Whole{Path: "annotations", Is: "a map of annotations", Check: manifest.AnnotationMap}
}

// guestMemory takes 0 as well, which clients write for none: a VM of such a type does not start.
func guestMemory(at *field.Path, value any) *field.Error {
	if value == "0" {
		return nil
	}
	return fields.Quantity(at, value)
}

// SupportedOfTypes returns the fields of an instance type's spec. Where a VMI has
// the same field, both take the same values.
func SupportedOfTypes() fields.Supported {
	vmi := vmspec.Supported()
	return fields.Supported{
		Rows: append(hostDeviceRows(vmi), []fields.Row{
			fields.At("cpu.guest", fields.Integer(0, vmspec.MaxVCPUs)),
			fields.At("cpu.model", vmi.Takes("domain.cpu.model")),
			fields.At("cpu.dedicatedCPUPlacement", fields.Boolean),
			fields.At("cpu.isolateEmulatorThread", fields.Boolean),
			fields.At("cpu.maxSockets", vmi.Takes("domain.cpu.maxSockets")),
			fields.At("cpu.numa.guestMappingPassthrough", fields.Object),
			fields.At("cpu.realtime.mask", vmi.Takes("domain.cpu.realtime.mask")),
			fields.At("ioThreadsPolicy", vmi.Takes("domain.ioThreadsPolicy")),
			fields.At("memory.guest", guestMemory),
			fields.At("memory.maxGuest", vmi.Takes("domain.memory.maxGuest")),
			fields.At("memory.hugepages.pageSize", vmi.Takes("domain.memory.hugepages.pageSize")),
			fields.At("memory.overcommitPercent", fields.Integer(0, 99)),
			fields.At("schedulerName", fields.Subdomain),
		}...),
		Wholes: []fields.Whole{
			{Path: "nodeSelector", Is: "a map of labels", Check: manifest.LabelMap},
			annotationsOfInstances(),
		},
	}
}

// hostDeviceRows are the node's devices of an instance type, which a VMI has below domain.devices.
func hostDeviceRows(vmi fields.Supported) []fields.Row {
	const parent = "domain.devices."
	var rows []fields.Row
	for _, list := range []string{"gpus", "hostDevices"} {
		for _, row := range vmi.Below(parent + list).Rows {
			row.Path = strings.TrimPrefix(row.Path, parent)
			rows = append(rows, row)
		}
	}
	return rows
}

// SupportedOfPreferences returns the fields of a preference's spec. Where a VMI has
// the same field, both take the same values.
func SupportedOfPreferences() fields.Supported {
	vmi := vmspec.Supported()
	return fields.Supported{
		Rows: slices.Concat(derivedRows(), []fields.Row{
			fields.At("cpu.preferredCPUTopology", fields.OneOf(
				instancetype.Sockets, instancetype.Cores, instancetype.Threads, instancetype.Spread, instancetype.Any,
				instancetype.DeprecatedPreferSockets, instancetype.DeprecatedPreferCores, instancetype.DeprecatedPreferThreads,
				instancetype.DeprecatedPreferSpread, instancetype.DeprecatedPreferAny)),
			fields.At("cpu.spreadOptions.across", fields.OneOf(instancetype.SpreadAcrossSocketsCores,
				instancetype.SpreadAcrossCoresThreads, instancetype.SpreadAcrossSocketsCoresThreads)),
			fields.At("cpu.spreadOptions.ratio", fields.Integer(1, vmspec.MaxVCPUs)),
			fields.At("cpu.preferredCPUFeatures", fields.List(128)),
			fields.At("cpu.preferredCPUFeatures[].name", vmi.Takes("domain.cpu.features[].name")),
			fields.At("cpu.preferredCPUFeatures[].policy", vmi.Takes("domain.cpu.features[].policy")),
			fields.At("preferSpreadSocketToCoreRatio", fields.Integer(0, vmspec.MaxVCPUs)),
			fields.At("devices.preferredAutoattachGraphicsDevice", fields.Boolean),
			fields.At("devices.preferredAutoattachMemBalloon", fields.Boolean),
			fields.At("devices.preferredAutoattachPodInterface", fields.Boolean),
			fields.At("devices.preferredAutoattachSerialConsole", fields.Only(true)),
			fields.At("devices.preferredCdromBus", vmi.Takes("domain.devices.disks[].cdrom.bus")),
			fields.At("devices.preferredDiskBus", vmi.Takes("domain.devices.disks[].disk.bus")),
			fields.At("devices.preferredDiskCache", vmi.Takes("domain.devices.disks[].cache")),
			fields.At("devices.preferredDiskIO", vmi.Takes("domain.devices.disks[].io")),
			fields.At("devices.preferredInterfaceMasquerade", fields.Object),
			fields.At("devices.preferredInterfaceModel", vmi.Takes("domain.devices.interfaces[].model")),
			fields.At("devices.preferredNetworkInterfaceMultiQueue", fields.Boolean),
			fields.At("devices.preferredRng", fields.Object),
			fields.At("devices.preferredSoundModel", vmi.Takes("domain.devices.sound.model")),
			fields.At("devices.preferredUseVirtioTransitional", fields.Boolean),
			fields.At("devices.preferredTPM.enabled", fields.Boolean),
			fields.At("devices.preferredTPM.persistent", vmi.Takes("domain.devices.tpm.persistent")),
			fields.At("features.preferredSmm.enabled", fields.Boolean),
			fields.At("firmware.preferredEfi.secureBoot", fields.Boolean),
			fields.At("firmware.preferredEfi.persistent", vmi.Takes("domain.firmware.bootloader.efi.persistent")),
			fields.At("firmware.preferredUseBios", fields.Only(true)),
			fields.At("firmware.preferredUseBiosSerial", fields.Boolean),
			fields.At("firmware.preferredUseEfi", fields.Boolean),
			fields.At("firmware.preferredUseSecureBoot", fields.Boolean),
			fields.At("machine.preferredMachineType", vmi.Takes("domain.machine.type")),
			fields.At("preferredArchitecture", vmspec.Architectures),
			fields.At("preferredSubdomain", fields.Label),
			fields.At("preferredTerminationGracePeriodSeconds", fields.Integer(0, 1<<31-1)),
			fields.At("requirements.architecture", vmspec.Architectures),
			fields.At("requirements.cpu.guest", fields.Integer(0, vmspec.MaxVCPUs)),
			fields.At("requirements.memory.guest", fields.Quantity),
		}),
		Wholes: []fields.Whole{annotationsOfInstances()},
	}
}

// CheckType decodes an instance type's spec out of a manifest, as
// [manifest.CheckVMI] decodes a VMI's. The spec is nil if there is a problem.
func CheckType(at *field.Path, tree any) (*instancetype.VirtualMachineInstancetypeSpec, field.ErrorList) {
	table := SupportedOfTypes().Table(func() any { return new(instancetype.VirtualMachineInstancetypeSpec) })
	spec, problems := fields.CheckAs[instancetype.VirtualMachineInstancetypeSpec](table, at, tree)
	if spec == nil {
		return nil, problems
	}
	if size := spec.Memory.Guest; !size.IsZero() {
		if err := vmspec.CheckMemory(size.Value()); err != nil {
			problems = append(problems, fields.Invalid(at.Child("memory", "guest"), size.String(), "%s", err))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// CheckPreference decodes a preference's spec out of a manifest, as
// [manifest.CheckVMI] decodes a VMI's. The spec is nil if there is a problem.
func CheckPreference(at *field.Path, tree any) (*instancetype.VirtualMachinePreferenceSpec, field.ErrorList) {
	table := SupportedOfPreferences().Table(func() any { return new(instancetype.VirtualMachinePreferenceSpec) })
	spec, problems := fields.CheckAs[instancetype.VirtualMachinePreferenceSpec](table, at, tree)
	if spec == nil {
		return nil, problems
	}
	if cpu := spec.CPU; cpu != nil {
		p := vmspec.CheckCPUFeatures(at.Child("cpu", "preferredCPUFeatures"), cpu.PreferredCPUFeatures)
		problems = append(problems, fields.Unrelated(p, problems)...)
		if s := cpu.SpreadOptions; s != nil && s.Across != nil && s.Ratio != nil && *s.Ratio != 2 &&
			*s.Across == instancetype.SpreadAcrossCoresThreads {
			problems = append(problems, fields.Invalid(at.Child("cpu", "spreadOptions", "ratio"), *s.Ratio,
				"only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}
