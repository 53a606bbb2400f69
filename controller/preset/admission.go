package preset

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func rules() admission.Rules {
	return admission.Rules{
		Check:   check,
		Default: func(_ *admission.Review, spec admission.Tree) { admission.SetDevices(spec) },
	}
}

// check checks the name since it becomes part of an annotation's key.
func check(r *admission.Review) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	problems := admission.CheckName(meta, r.Meta.Name)
	tree := r.Object["spec"]
	if tree == nil {
		return append(problems, field.Required(spec, "set the preset's selector and domain"))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Meta.Annotations)) {
		if strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			problems = append(problems, field.Forbidden(meta.Child("annotations").Key(key), "belongs to an instance, not to a preset"))
		}
	}
	return append(problems, CheckManifest(spec, tree)...)
}
