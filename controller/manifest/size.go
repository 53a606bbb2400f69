package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// ConflictsWithType is KubeVirt's text for a field that an instance type sets.
const ConflictsWithType = "conflicts with selected instance type"

// SizeConflicts returns the fields by which a VMI's spec sets its size although
// its VM's instance type sets it.
func SizeConflicts(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	domain := at.Child("domain")
	conflict := func(is bool, path ...string) {
		if is {
			problems = append(problems, fields.Refused(domain.Child(path[0], path[1:]...), "%s", ConflictsWithType))
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
