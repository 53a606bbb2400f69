package admission

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkUpdate refuses changes of an instance's spec, which its pod and its
// machine were made of. A VM's may change: it is for the next instance.
func (r *review) checkUpdate() field.ErrorList {
	if r.old == nil || r.request.Kind.Kind != kindVMI {
		return nil
	}
	var problems field.ErrorList
	for _, at := range differences(field.NewPath("spec"), r.old["spec"], r.object["spec"]) {
		problems = append(problems, field.Forbidden(at,
			"an instance can't be changed; delete it and make it anew, or change its VirtualMachine and restart that"))
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
