package admission

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func (r *review) checkVM() field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	problems := checkName(meta, r.meta.Name)
	for _, key := range slices.Sorted(maps.Keys(r.meta.Annotations)) {
		if strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			problems = append(problems, field.Forbidden(meta.Child("annotations").Key(key),
				"speaks to the instance; put it into spec.template.metadata.annotations"))
		}
	}
	tree, ok := r.object["spec"]
	if !ok || tree == nil {
		return append(problems, field.Required(spec, "it says what machine this is"))
	}
	problems = append(problems, checkRunning(spec, tree)...)
	vm, p := vmspec.CheckVM(spec, tree)
	problems = append(problems, p...)
	if vm == nil {
		return problems
	}
	r.vmi = &vm.Template.Spec
	return append(problems, checkAnnotations(
		spec.Child("template", "metadata", "annotations"), vm.Template.ObjectMeta.Annotations, r.vmi)...)
}

// checkRunning wants one of the two fields that say whether there is an instance.
func checkRunning(spec *field.Path, tree any) field.ErrorList {
	vm, ok := tree.(map[string]any)
	if !ok {
		return nil // told otherwise
	}
	running, strategy := vm["running"] != nil, vm["runStrategy"] != nil && vm["runStrategy"] != ""
	switch {
	case running && strategy:
		return field.ErrorList{field.Forbidden(spec.Child("running"),
			"runStrategy is given too; use runStrategy alone")}
	case !running && !strategy:
		return field.ErrorList{field.Required(spec.Child("runStrategy"),
			"say when the VM is to run: Always, RerunOnFailure, Manual, Halted or Once")}
	}
	return nil
}
