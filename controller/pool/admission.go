package pool

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/vm"
)

// rules set no finalizer: Kubernetes' garbage collector removes the VMs of a pool that
// was deleted.
func rules() admission.Rules {
	return admission.Rules{
		Within:      []string{template, "spec"},
		Check:       check,
		CheckUpdate: checkUpdate,
		Default:     setDefaults,
		Presets:     func(r *admission.Review) (admission.Subject, bool) { return r.TemplateSubject(nil) },
	}
}

func check(r *admission.Review) field.ErrorList {
	tree, problems := r.CheckTemplated()
	// The names of VMs are longer, and become labels' values.
	problems = append(admission.CheckName(field.NewPath("metadata"), r.Meta.Name+"-0"), problems...)
	if tree == nil {
		return problems
	}
	spec := field.NewPath("spec")
	pool, p := CheckManifest(spec, tree)
	problems = append(problems, p...)
	if pool == nil {
		return problems
	}
	t := pool.VirtualMachineTemplate
	problems = append(problems, r.CheckMisplaced(spec.Child(template, "metadata"), t.ObjectMeta.Annotations)...)
	problems = append(problems, vm.CheckNamespaces(spec.Child(template, "spec"), &t.Spec, r.Meta.Namespace)...)
	return append(problems, r.CheckTemplate(t.Spec.Template)...)
}

// checkUpdate refuses another selector: the pool's VMs have the labels of the former.
func checkUpdate(r *admission.Review) field.ErrorList {
	old, _, _ := unstructured.NestedFieldNoCopy(r.Old, "spec", "selector")
	now, _, _ := unstructured.NestedFieldNoCopy(r.Object, "spec", "selector")
	if reflect.DeepEqual(old, now) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "selector"), "cannot change; create another pool")}
}

func setDefaults(r *admission.Review, spec admission.Tree) {
	if spec["replicas"] == nil {
		spec["replicas"] = int64(1)
	}
	r.SetTemplateDefaults(admission.Child(admission.Child(spec, template), "spec"))
}
