package vmspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
)

// supportedOfInstancetypes is what an instance type may say.
var supportedOfInstancetypes = []row{
	{"cpu.guest", integer(1, maxVCPUs)},
	{"cpu.model", cpuModel},
	{"memory.guest", quantity},
	{"memory.overcommitPercent", integer(0, 99)},
	{"schedulerName", subdomain},
}

var wholesOfInstancetypes = []whole{
	{"nodeSelector", "a map of labels", labelMap},
	{"annotations", "a map of annotations", annotationMap},
}

// supportedOfPreferences is what a preference may say.
var supportedOfPreferences = []row{
	{"cpu.preferredCPUTopology", oneOf(
		instancetype.Sockets, instancetype.Cores, instancetype.Threads, instancetype.Spread, instancetype.Any,
		instancetype.DeprecatedPreferSockets, instancetype.DeprecatedPreferCores, instancetype.DeprecatedPreferThreads,
		instancetype.DeprecatedPreferSpread, instancetype.DeprecatedPreferAny)},
	{"cpu.spreadOptions.across", oneOf(instancetype.SpreadAcrossSocketsCores,
		instancetype.SpreadAcrossCoresThreads, instancetype.SpreadAcrossSocketsCoresThreads)},
	{"cpu.spreadOptions.ratio", integer(1, maxVCPUs)},
	{"cpu.preferredCPUFeatures", list(128)},
	{"cpu.preferredCPUFeatures[].name", cpuFeature},
	{"cpu.preferredCPUFeatures[].policy", cpuPolicy},
	{"preferSpreadSocketToCoreRatio", integer(0, maxVCPUs)},
	{"devices.preferredAutoattachGraphicsDevice", boolean},
	{"devices.preferredAutoattachMemBalloon", boolean},
	{"devices.preferredAutoattachPodInterface", boolean},
	{"devices.preferredAutoattachSerialConsole", only(true)},
	{"devices.preferredCdromBus", cdromBus},
	{"devices.preferredDiskBus", diskBus},
	{"devices.preferredDiskCache", diskCache},
	{"devices.preferredDiskIO", diskIO},
	{"devices.preferredInterfaceMasquerade", object},
	{"devices.preferredInterfaceModel", cardModel},
	{"devices.preferredNetworkInterfaceMultiQueue", boolean},
	{"devices.preferredRng", object},
	{"firmware.preferredUseBios", only(true)},
	{"machine.preferredMachineType", machineType},
	{"preferredArchitecture", oneOf("amd64")},
	{"preferredSubdomain", label},
	{"preferredTerminationGracePeriodSeconds", integer(0, 1<<31-1)},
	{"requirements.architecture", oneOf("amd64")},
	{"requirements.cpu.guest", integer(0, maxVCPUs)},
	{"requirements.memory.guest", quantity},
}

var wholesOfPreferences = []whole{
	{"annotations", "a map of annotations", annotationMap},
}

// InstancetypePaths returns the paths of an instance type's fields that are supported.
func InstancetypePaths() []string {
	return paths("spec.", supportedOfInstancetypes, wholesOfInstancetypes)
}

// PreferencePaths returns the paths of a preference's fields that are supported.
func PreferencePaths() []string {
	return paths("spec.", supportedOfPreferences, wholesOfPreferences)
}

// CheckInstancetype decodes an instance type's spec out of a manifest, as [CheckVMI]
// does a VMI's.
func CheckInstancetype(at *field.Path, tree any) (*instancetype.VirtualMachineInstancetypeSpec, field.ErrorList) {
	fresh := func() any { return new(instancetype.VirtualMachineInstancetypeSpec) }
	spec, problems := checkAs[instancetype.VirtualMachineInstancetypeSpec](
		newTable(fresh, supportedOfInstancetypes, wholesOfInstancetypes), at, tree)
	if spec == nil {
		return nil, problems
	}
	var missing field.ErrorList
	if spec.CPU.Guest == 0 {
		missing = append(missing, field.Required(at.Child("cpu", "guest"), "say how many vCPUs a VM has"))
	}
	if size := spec.Memory.Guest; size.IsZero() {
		missing = append(missing, field.Required(at.Child("memory", "guest"), "say how much memory a VM has"))
	} else if _, err := ram(size.Value()); err != nil {
		missing = append(missing, invalid(at.Child("memory", "guest"), size.String(), "%s", err))
	}
	if problems = append(problems, unrelated(missing, problems)...); len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// CheckPreference decodes a preference's spec out of a manifest, as [CheckVMI] does a
// VMI's.
func CheckPreference(at *field.Path, tree any) (*instancetype.VirtualMachinePreferenceSpec, field.ErrorList) {
	fresh := func() any { return new(instancetype.VirtualMachinePreferenceSpec) }
	spec, problems := checkAs[instancetype.VirtualMachinePreferenceSpec](
		newTable(fresh, supportedOfPreferences, wholesOfPreferences), at, tree)
	if spec == nil {
		return nil, problems
	}
	if cpu := spec.CPU; cpu != nil {
		_, p := cpuFeatures(at.Child("cpu", "preferredCPUFeatures"), cpu.PreferredCPUFeatures)
		problems = append(problems, unrelated(p, problems)...)
		if s := cpu.SpreadOptions; s != nil && s.Across != nil && s.Ratio != nil && *s.Ratio != 2 &&
			*s.Across == instancetype.SpreadAcrossCoresThreads {
			problems = append(problems, invalid(at.Child("cpu", "spreadOptions", "ratio"), *s.Ratio,
				"only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// checkAs holds a tree against a table and decodes what is sound of it; nil if that
// can't be.
func checkAs[T any](t table, at *field.Path, tree any) (*T, field.ErrorList) {
	sound, problems := t.check(at, tree)
	spec := new(T)
	if err := decode(sound, spec); err != nil {
		return nil, append(problems, invalid(at, field.OmitValueType{}, "%s", excerpt(err.Error())))
	}
	return spec, problems
}

// SizeConflicts are what a VMI's spec says of its size, which its VM's instance type
// says as well.
func SizeConflicts(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	domain := at.Child("domain")
	conflict := func(is bool, path ...string) {
		if is {
			problems = append(problems, refused(domain.Child(path[0], path[1:]...), "%s", ConflictsWithType))
		}
	}
	if cpu := vmi.Domain.CPU; cpu != nil {
		conflict(cpu.Sockets != 0, "cpu", "sockets")
		conflict(cpu.Cores != 0, "cpu", "cores")
		conflict(cpu.Threads != 0, "cpu", "threads")
	}
	conflict(vmi.Domain.Memory != nil, "memory")
	for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, requested := vmi.Domain.Resources.Requests[of]
		conflict(requested, "resources", "requests", string(of))
		_, limited := vmi.Domain.Resources.Limits[of]
		conflict(limited, "resources", "limits", string(of))
	}
	return problems
}

// ConflictsWithType is what is said of a field that an instance type sets, in
// KubeVirt's words.
const ConflictsWithType = "conflicts with selected instance type"

// kindOf takes the name of a resource's kind, or of the resource, in any case.
func kindOf(kinds ...string) takes {
	return str(func(at *field.Path, s string) *field.Error {
		for _, kind := range kinds {
			if strings.EqualFold(s, kind) || strings.EqualFold(s, kind+"s") {
				return nil
			}
		}
		return field.NotSupported(at, excerpt(s), kinds)
	})
}

// checkMatchers wants the names of what a VM refers to.
func checkMatchers(at *field.Path, vm *kubevirt.VirtualMachineSpec) field.ErrorList {
	var problems field.ErrorList
	if vm.Instancetype != nil && vm.Instancetype.Name == "" {
		problems = append(problems, field.Required(at.Child("instancetype", "name"), "the name of an instance type"))
	}
	if vm.Preference != nil && vm.Preference.Name == "" {
		problems = append(problems, field.Required(at.Child("preference", "name"), "the name of a preference"))
	}
	return problems
}
