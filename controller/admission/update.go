package admission

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkUpdate refuses changes of an instance's spec, which its pod and its
// machine were made of. A VM's may change: it is for the next instance.
func (r *review) checkUpdate() field.ErrorList {
	switch {
	case r.old == nil:
		return nil
	case r.request.Kind.Kind == kindVM:
		return r.checkRevisions()
	case r.request.Kind.Kind != kindVMI:
		return nil
	}
	var problems field.ErrorList
	for _, at := range differences(field.NewPath("spec"), r.old["spec"], r.object["spec"]) {
		problems = append(problems, field.Forbidden(at,
			"an instance can't be changed; delete it and make it anew, or change its VirtualMachine and restart that"))
	}
	return problems
}

// checkRevisions refuses another instance type or preference with the revision of
// the one before, as KubeVirt does: it would change nothing.
func (r *review) checkRevisions() field.ErrorList {
	var problems field.ErrorList
	for _, of := range []string{"instancetype", "preference"} {
		old, _, _ := unstructured.NestedStringMap(r.old, "spec", of)
		now, _, _ := unstructured.NestedStringMap(r.object, "spec", of)
		if now["revisionName"] != "" && old["revisionName"] == now["revisionName"] && old["name"] != now["name"] {
			problems = append(problems, field.Forbidden(field.NewPath("spec", of, "revisionName"),
				"is of "+old["name"]+"; leave it out, or name one of "+now["name"]))
		}
	}
	return problems
}

// differences are the paths at which two decoded JSON values differ.
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
