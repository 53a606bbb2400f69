package fields

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors quote untrusted text and end up in logs and events: their number and
// their length are bounded.
const (
	maxProblems = 20
	maxExcerpt  = 64
	maxPath     = 256
)

// Excerpt returns the beginning of an untrusted text, without control characters.
func Excerpt(s string) string { return Clip(s, maxExcerpt) }

// Clip returns at most limit characters of an untrusted text, without control
// characters.
func Clip(s string, limit int) string {
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

// Invalid returns the problem of a field whose value is not allowed.
func Invalid(path *field.Path, value any, format string, args ...any) *field.Error {
	if text, ok := value.(string); ok {
		value = Excerpt(text)
	}
	return field.Invalid(path, value, fmt.Sprintf(format, args...))
}

// Refused returns the problem of a field that must not be set, or not together
// with another one.
func Refused(path *field.Path, format string, args ...any) *field.Error {
	return field.Forbidden(path, fmt.Sprintf(format, args...))
}

// Sentence returns a problem as text: its path, a colon and what is wrong. A text of KubeVirt's that has the path
// is the whole sentence.
func Sentence(p *field.Error) string {
	if _, omitted := p.BadValue.(field.OmitValueType); omitted && strings.Contains(p.Detail, p.Field) {
		return p.Detail
	}
	return Clip(p.Field, maxPath) + ": " + body(p)
}

// body returns the text of a problem without its path. "Forbidden:" would
// suggest missing permissions, and "Invalid value:" needs a value to show.
func body(p *field.Error) string {
	if _, omitted := p.BadValue.(field.OmitValueType); omitted || p.Type == field.ErrorTypeForbidden {
		return p.Detail
	}
	return p.ErrorBody()
}

// Join joins the first 20 errors and counts the others.
func Join(errs []error) error {
	if more := len(errs) - maxProblems; more > 0 {
		errs = append(errs[:maxProblems:maxProblems], fmt.Errorf("… and %d more problems", more))
	}
	return errors.Join(errs...)
}

// Without returns the problems whose path is not the path of a problem in have.
func Without(problems, have field.ErrorList) field.ErrorList {
	known := sets.New[string]()
	for _, p := range have {
		known.Insert(p.Field)
	}
	return slices.DeleteFunc(problems, func(p *field.Error) bool { return known.Has(p.Field) })
}

// Unrelated returns the problems that no problem in of explains: none of these
// is at the same path, above it or below it.
func Unrelated(problems, of field.ErrorList) field.ErrorList {
	below := func(path, of string) bool {
		rest, ok := strings.CutPrefix(path, of)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.DeleteFunc(problems, func(p *field.Error) bool {
		return slices.ContainsFunc(of, func(o *field.Error) bool {
			return below(p.Field, o.Field) || below(o.Field, p.Field)
		})
	})
}
