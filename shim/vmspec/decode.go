package vmspec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// DecodeVMI decodes the JSON of a VMI's spec, as a node reads it. It returns every
// problem with its path from "spec" on: unknown, duplicate, unsupported and
// malformed fields, and fields that contradict each other. The spec is nil if
// there is a problem.
func DecodeVMI(text []byte) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	root := field.NewPath("spec")
	t := table()
	var tree any
	duplicate, err := kjson.UnmarshalStrict(text, &tree)
	if err != nil {
		return nil, field.ErrorList{invalid(root, field.OmitValueType{}, "%s", notJSON(err))}
	}
	problems := t.Strict(root, duplicate)
	_, p := t.Check(root, tree)
	problems = append(problems, fields.Without(p, problems)...)
	if len(problems) > 0 {
		return nil, problems
	}
	vmi := new(plainSpec)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, vmi); err != nil {
		return nil, field.ErrorList{invalid(root, field.OmitValueType{}, "%s", excerpt(err.Error()))}
	}
	spec := (*kubevirt.VirtualMachineInstanceSpec)(vmi)
	if problems := checkVMI(root, spec); len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// plainSpec is the API's type without its own decoder, which is neither strict nor
// case sensitive.
type plainSpec kubevirt.VirtualMachineInstanceSpec

func notJSON(err error) string {
	if isSyntax, offset := kjson.SyntaxErrorOffset(err); isSyntax {
		return fmt.Sprintf("not JSON at byte %d: %s", offset, excerpt(err.Error()))
	}
	return "not JSON: " + excerpt(err.Error())
}
