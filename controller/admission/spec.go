package admission

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckSpec returns a check of an object's spec by a kind's manifest; required says what a
// missing spec must have.
func CheckSpec[T any](required string, manifest func(*field.Path, any) (*T, field.ErrorList)) func(*Review) field.ErrorList {
	return func(r *Review) field.ErrorList {
		spec := field.NewPath("spec")
		tree := r.Object["spec"]
		if tree == nil {
			return field.ErrorList{field.Required(spec, required)}
		}
		_, problems := manifest(spec, tree)
		return problems
	}
}

// SameSpec returns a check that refuses an update of the spec with a message.
func SameSpec(message string) func(*Review) field.ErrorList {
	return func(r *Review) field.ErrorList {
		if reflect.DeepEqual(r.Old["spec"], r.Object["spec"]) {
			return nil
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), message)}
	}
}
