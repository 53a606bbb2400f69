package migrationpolicy

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
)

func rules() admission.Rules {
	return admission.Rules{Check: func(r *admission.Review) field.ErrorList {
		_, problems := CheckManifest(field.NewPath("spec"), r.Object["spec"])
		return problems
	}}
}
