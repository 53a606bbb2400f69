package vmspec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// maxPath bounds the paths in problems.
const maxPath = 256

// Short names of what most files of this package use.

func excerpt(s string) string { return fields.Excerpt(s) }

func clip(s string, limit int) string { return fields.Clip(s, limit) }

func capped(errs []error) error { return fields.Join(errs) }

func invalid(path *field.Path, value any, format string, args ...any) *field.Error {
	return fields.Invalid(path, value, format, args...)
}

func refused(path *field.Path, format string, args ...any) *field.Error {
	return fields.Refused(path, format, args...)
}

// annotationError reports the problems of a VMI to the author of its pod; nil if
// there are none.
func annotationError(problems field.ErrorList) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: %s", AnnotationVMI, fields.Sentence(p)))
	}
	return capped(errs)
}
