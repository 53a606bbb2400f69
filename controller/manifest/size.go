package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// ConflictWithType is the problem of a field that an instance type sets, in KubeVirt's words.
func ConflictWithType(at *field.Path) *field.Error {
	return fields.Invalid(at, field.OmitValueType{}, "VM field(s) %s conflicts with selected instance type", at)
}

// sizeCheck returns what is wrong with the size in a VMI's spec.
type sizeCheck func(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList

// requireMemory is the check of a VMI that is to run.
func requireMemory(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	if HasMemory(vmi) {
		return nil
	}
	return field.ErrorList{MemoryRequired(at)}
}

// MemoryRequired is the problem of a VMI's spec without memory.
func MemoryRequired(at *field.Path) *field.Error {
	return field.Required(at.Child("domain", "memory", "guest"), "set the size of the VM's memory")
}

// anySize is the check of a template: an instance type may be named, or memory be set, before its instances run.
func anySize(*field.Path, *kubevirt.VirtualMachineInstanceSpec) field.ErrorList { return nil }

// HasMemory reports whether a VMI's spec says how much memory the VM has.
func HasMemory(vmi *kubevirt.VirtualMachineInstanceSpec) bool { return Memory(vmi) != 0 }

// Memory returns the guest's memory in bytes; 0 if a VMI's spec does not say it.
func Memory(vmi *kubevirt.VirtualMachineInstanceSpec) int64 {
	vm, _ := vmspec.Preview(field.NewPath("spec"), vmi)
	return vm.Memory
}

// SizeConflicts returns the fields by which a VMI's spec sets its size although
// its VM's instance type sets it.
func SizeConflicts(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	domain := at.Child("domain")
	conflict := func(is bool, path ...string) {
		if is {
			problems = append(problems, ConflictWithType(domain.Child(path[0], path[1:]...)))
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
