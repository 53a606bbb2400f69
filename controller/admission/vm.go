package admission

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/replicaset"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func (r *review) checkVM() field.ErrorList {
	spec := field.NewPath("spec")
	tree, problems := r.checkTemplated()
	problems = append(checkName(field.NewPath("metadata"), r.meta.Name), problems...)
	if tree == nil {
		return problems
	}
	problems = append(problems, checkRunning(spec, tree)...)
	given, p := vm.CheckManifest(spec, tree)
	problems = append(problems, p...)
	if given == nil {
		return problems
	}
	return append(problems, r.checkTemplate(given.Template)...)
}

func (r *review) checkReplicaSet() field.ErrorList {
	tree, problems := r.checkTemplated()
	if tree == nil {
		return problems
	}
	set, p := replicaset.CheckManifest(field.NewPath("spec"), tree)
	problems = append(problems, p...)
	if set == nil {
		return problems
	}
	return append(problems, r.checkTemplate(set.Template)...)
}

// checkTemplated checks what an object with a template says beside its spec, which
// it returns.
func (r *review) checkTemplated() (any, field.ErrorList) {
	meta := field.NewPath("metadata")
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(r.meta.Annotations)) {
		if strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			problems = append(problems, field.Forbidden(meta.Child("annotations").Key(key),
				"speaks to the instance; put it into spec.template.metadata.annotations"))
		}
	}
	tree := r.spec()
	if tree == nil {
		problems = append(problems, field.Required(field.NewPath("spec"), "it says what machine this is"))
	}
	return tree, problems
}

// checkTemplate checks a template whose spec is sound.
func (r *review) checkTemplate(t *kubevirt.VirtualMachineInstanceTemplateSpec) field.ErrorList {
	r.vmi = &t.Spec
	return checkAnnotations(field.NewPath("spec", "template", "metadata", "annotations"), t.ObjectMeta.Annotations, r.vmi)
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
