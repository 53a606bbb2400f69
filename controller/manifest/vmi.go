package manifest

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// plainSpec is the API's type without its own decoder, which is neither strict nor
// case sensitive.
type plainSpec kubevirt.VirtualMachineInstanceSpec

// table makes the table of a VMI's spec at the first call.
var table = sync.OnceValue(func() fields.Table {
	return vmspec.Supported().And(PodFields()).Table(func() any { return new(plainSpec) })
})

// CheckVMI decodes a VMI's spec out of a manifest. Beside the fields that a node
// reads it may have those of [PodFields]. CheckVMI returns every problem with its
// path, contradictions between sound fields included; at is the spec's own path.
// The spec is nil if there is a problem.
func CheckVMI(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	return checkSpec(at, tree, requireMemory)
}

// checkSpec is CheckVMI with another check of the size.
func checkSpec(at *field.Path, tree any, size sizeCheck) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	tree, problems := oldDisks(at, tree)
	spec, p := fields.CheckAs[plainSpec](table(), at, tree)
	problems = append(problems, p...)
	if spec == nil {
		return nil, problems
	}
	vmi := (*kubevirt.VirtualMachineInstanceSpec)(spec)
	_, further := vmspec.Preview(at, vmi)
	further = append(further, fields.Unrelated(size(at, vmi), further)...)
	further = append(further, checkPod(at, vmi)...)
	if problems = append(problems, fields.Unrelated(further, problems)...); len(problems) > 0 {
		return nil, problems
	}
	return vmi, nil
}
