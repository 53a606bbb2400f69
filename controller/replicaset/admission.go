package replicaset

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// rules set no finalizer: Kubernetes' garbage collector removes the instances of a
// set that was deleted.
func rules() admission.Rules {
	return admission.Rules{
		Check:   check,
		Default: setDefaults,
		Presets: func(r *admission.Review) (admission.Subject, bool) { return r.TemplateSubject(nil) },
	}
}

func check(r *admission.Review) field.ErrorList {
	tree, problems := r.CheckTemplated()
	if tree == nil {
		return problems
	}
	set, p := CheckManifest(field.NewPath("spec"), tree)
	problems = append(problems, p...)
	if set == nil {
		return problems
	}
	return append(problems, r.CheckTemplate(set.Template)...)
}

func setDefaults(r *admission.Review, spec admission.Tree) {
	if spec["replicas"] == nil {
		spec["replicas"] = int64(1)
	}
	r.SetTemplateDefaults(spec)
}
