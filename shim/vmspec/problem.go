package vmspec

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors quote a stranger's text and end up in logs and events: they are
// bounded in number and in length.
const (
	maxProblems = 20
	maxExcerpt  = 64
	maxPath     = 256
)

// excerpt returns the beginning of a stranger's text, without control characters.
func excerpt(s string) string { return clip(s, maxExcerpt) }

func clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, s[:min(len(s), limit*4)])
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}

// invalid says that a field has a value which it can't have.
func invalid(path *field.Path, value any, format string, args ...any) *field.Error {
	if text, ok := value.(string); ok {
		value = excerpt(text)
	}
	return field.Invalid(path, value, fmt.Sprintf(format, args...))
}

// refused says that a field can't be set, or not in this company.
func refused(path *field.Path, format string, args ...any) *field.Error {
	return field.Forbidden(path, fmt.Sprintf(format, args...))
}

// annotationError tells the problems of the VMI to the pod's author; nil if there is none.
func annotationError(problems field.ErrorList) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: %s: %s", AnnotationVMI, clip(p.Field, maxPath), body(p)))
	}
	return capped(errs)
}

// body is what a problem says beside its path. "Forbidden:" would blame
// permissions, and an invalid value that isn't shown goes without saying.
func body(p *field.Error) string {
	if _, omitted := p.BadValue.(field.OmitValueType); omitted || p.Type == field.ErrorTypeForbidden {
		return p.Detail
	}
	return p.ErrorBody()
}

// capped joins errors, the first maxProblems of them.
func capped(errs []error) error {
	if more := len(errs) - maxProblems; more > 0 {
		errs = append(errs[:maxProblems:maxProblems], fmt.Errorf("… and %d more problems", more))
	}
	return errors.Join(errs...)
}
