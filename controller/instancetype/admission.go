package instancetype

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// rulesOfTypes check the name since it becomes a label's value.
func rulesOfTypes() admission.Rules {
	return admission.Rules{Check: func(r *admission.Review) field.ErrorList {
		spec := field.NewPath("spec")
		of, problems := CheckType(spec, r.Object["spec"])
		problems = append(admission.CheckName(field.NewPath("metadata"), r.Meta.Name), problems...)
		if of == nil {
			return problems
		}
		return append(problems, admission.CheckAnnotations(spec.Child("annotations"), of.Annotations, nil)...)
	}}
}

func rulesOfPreferences() admission.Rules {
	return admission.Rules{Check: func(r *admission.Review) field.ErrorList {
		spec := field.NewPath("spec")
		of, problems := CheckPreference(spec, r.Object["spec"])
		problems = append(admission.CheckName(field.NewPath("metadata"), r.Meta.Name), problems...)
		if of == nil {
			return problems
		}
		return append(problems, admission.CheckAnnotations(spec.Child("annotations"), of.Annotations, nil)...)
	}}
}
