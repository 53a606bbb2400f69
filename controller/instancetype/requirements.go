package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// check finds in what the template at a path, or the instance type, falls short of
// the preference. Its words are KubeVirt's.
func (t Types) check(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	if t.Preference == nil {
		return nil
	}
	problems := t.checkSpread()
	needs := t.Preference.Requirements
	if needs == nil {
		return problems
	}
	domain := at.Child("spec", "domain")
	machine, _ := vmspec.Preview(at.Child("spec"), vmi)
	cpus, by, path := machine.CPU.Sockets*machine.CPU.Cores*machine.CPU.Threads, "VirtualMachine", domain.Child("cpu")
	memory, memoryPath := resource.NewQuantity(machine.Memory, resource.BinarySI), domain.Child("memory")
	if t.Instancetype != nil {
		path = field.NewPath("spec", "instancetype")
		cpus, by, memory, memoryPath = t.Instancetype.CPU.Guest, "instance type", &t.Instancetype.Memory.Guest, path
	}
	const of = "failure checking preference requirements: "
	if c := needs.CPU; c != nil && cpus < c.Guest {
		problems = append(problems, field.Forbidden(path, fmt.Sprintf(of+
			"insufficient CPU resources of %d vCPU provided by %s, preference requires %d vCPU", cpus, by, c.Guest)))
	}
	if m := needs.Memory; m != nil && memory.Cmp(m.Guest) < 0 {
		problems = append(problems, field.Forbidden(memoryPath, fmt.Sprintf(of+
			"insufficient Memory resources of %s provided by %s, preference requires %s", memory, by, &m.Guest)))
	}
	if want := needs.Architecture; want != nil && *want != machine.Arch() {
		problems = append(problems, field.Forbidden(at.Child("spec", "architecture"), fmt.Sprintf(of+
			"preference requires architecture %s but %s is being requested", *want, machine.Arch())))
	}
	return problems
}

// checkSpread wants vCPUs that can be spread as the preference says.
func (t Types) checkSpread() field.ErrorList {
	if t.Instancetype == nil || preferredTopology(t.Preference) != api.Spread {
		return nil
	}
	n := t.Instancetype.CPU.Guest
	ratio, across := spread(t.Preference)
	whole := ratio
	if across == api.SpreadAcrossSocketsCoresThreads {
		whole *= threadsPerCore
	}
	if n == 1 || n%whole == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "instancetype"), fmt.Sprintf(
		"%d vCPUs provided by the instance type can't be spread over %s with the ratio of %d provided by the preference",
		n, across, ratio))}
}
