package installation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
)

func rules() admission.Rules {
	return admission.Rules{Check: func(r *admission.Review) field.ErrorList {
		return append(checkName(r), admission.CheckSpec("use {} for no configuration", CheckManifest)(r)...)
	}}
}

// checkName refuses every object but the one that the controller honours: a second one would have no effect.
func checkName(r *admission.Review) field.ErrorList {
	key, meta := r.Config.Object, field.NewPath("metadata")
	var problems field.ErrorList
	if r.Meta.Name != key.Name {
		problems = append(problems, field.Forbidden(meta.Child("name"), fmt.Sprintf(
			"the cluster has one KubeVirt object, %s in namespace %s; change that one", key.Name, key.Namespace)))
	}
	if r.Meta.Namespace != key.Namespace {
		problems = append(problems, field.Forbidden(meta.Child("namespace"), fmt.Sprintf(
			"the cluster's KubeVirt object is in the namespace of nodevirt-controller, %s", key.Namespace)))
	}
	return problems
}
