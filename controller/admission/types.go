package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// checkInstancetype checks what machines are to have whose VMs name this one.
func (r *review) checkInstancetype() field.ErrorList {
	spec := field.NewPath("spec")
	of, problems := instancetype.CheckType(spec, r.object["spec"])
	problems = append(checkName(field.NewPath("metadata"), r.meta.Name), problems...) // it becomes a label's value
	if of == nil {
		return problems
	}
	return append(problems, checkAnnotations(spec.Child("annotations"), of.Annotations, nil)...)
}

func (r *review) checkPreference() field.ErrorList {
	spec := field.NewPath("spec")
	of, problems := instancetype.CheckPreference(spec, r.object["spec"])
	problems = append(checkName(field.NewPath("metadata"), r.meta.Name), problems...)
	if of == nil {
		return problems
	}
	return append(problems, checkAnnotations(spec.Child("annotations"), of.Annotations, nil)...)
}
