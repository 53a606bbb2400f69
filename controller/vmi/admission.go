package vmi

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/manifest"
)

func rules() admission.Rules {
	return admission.Rules{
		Instance:    true,
		Finalizer:   kubevirt.VirtualMachineInstanceFinalizer,
		Check:       check,
		CheckUpdate: checkUpdate,
		Default:     setDefaults,
		Presets:     admission.InstanceSubject,
	}
}

func check(r *admission.Review) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	problems := admission.CheckName(meta, r.Meta.Name)
	tree, ok := r.Object["spec"]
	if !ok || tree == nil {
		return append(problems, field.Required(spec, "describe the VM here"))
	}
	vmi, p := manifest.CheckVMI(spec, tree)
	problems = append(problems, p...)
	r.VMI, r.Annotations = vmi, r.Meta.Annotations
	return append(problems, admission.CheckAnnotations(meta.Child("annotations"), r.Meta.Annotations, vmi)...)
}

// checkUpdate refuses changes of an instance's spec, since its pod and its guest
// exist already, except for the volumes that a VM which runs can get and lose. The spec
// of a VirtualMachine may change: the next instance has it.
func checkUpdate(r *admission.Review) field.ErrorList {
	old, now, problems := withoutPlugged(r)
	for _, at := range differences(field.NewPath("spec"), old, now) {
		problems = append(problems, field.Forbidden(at,
			"an instance can't be changed; delete and recreate it, or change its VirtualMachine and restart that"))
	}
	return problems
}

// differences returns the paths at which two decoded JSON values differ.
func differences(at *field.Path, a, b any) []*field.Path {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	var paths []*field.Path
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			paths = append(paths, differences(at.Child(key), a[key], b[key])...)
		}
		return paths
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			paths = append(paths, differences(at.Index(i), a[i], b[i])...)
		}
		return paths
	}
	return []*field.Path{at}
}
