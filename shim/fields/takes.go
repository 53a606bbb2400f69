package fields

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Takes checks a decoded JSON value at a path and returns what is wrong with it;
// nil for nothing. An empty string counts as unset, as in the types of the API.
type Takes func(at *field.Path, value any) *field.Error

const (
	// MaxElements bounds every list without another bound.
	MaxElements = 16
	// MaxLabel is the length of a DNS label (RFC 1035, 2.3.4).
	MaxLabel = 63
)

// Label takes a DNS label.
func Label(at *field.Path, value any) *field.Error {
	return String(func(at *field.Path, s string) *field.Error {
		if len(validation.IsDNS1123Label(s)) > 0 {
			return Invalid(at, s, "must be a DNS label: a-z, 0-9 and - inside, at most %d characters", MaxLabel)
		}
		return nil
	})(at, value)
}

// Subdomain takes DNS labels with dots between them.
func Subdomain(at *field.Path, value any) *field.Error {
	return String(func(at *field.Path, s string) *field.Error {
		if len(validation.IsDNS1123Subdomain(s)) > 0 {
			return Invalid(at, s, "must be DNS labels with dots between them, at most 253 characters")
		}
		return nil
	})(at, value)
}

// String takes a string that is empty or passes a check.
func String(check func(*field.Path, string) *field.Error) Takes {
	return func(at *field.Path, value any) *field.Error {
		s, ok := value.(string)
		switch {
		case !ok:
			return WrongType(at, value, "a string")
		case s == "":
			return nil
		}
		return check(at, s)
	}
}

// Text takes any string of up to limit bytes.
func Text(limit int) Takes {
	return String(func(at *field.Path, s string) *field.Error {
		if len(s) > limit {
			return field.TooLong(at, nil, limit)
		}
		return nil
	})
}

// Match takes a string of up to limit bytes that a regular expression matches as a whole.
func Match(pattern string, limit int) Takes {
	whole := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return String(func(at *field.Path, s string) *field.Error {
		if len(s) > limit || !whole.MatchString(s) {
			return Invalid(at, s, "must match %s and have at most %d characters", pattern, limit)
		}
		return nil
	})
}

// OneOf takes one of some strings.
func OneOf[T ~string](values ...T) Takes {
	return String(func(at *field.Path, s string) *field.Error {
		for _, v := range values {
			if s == string(v) {
				return nil
			}
		}
		return field.NotSupported(at, T(Excerpt(s)), values)
	})
}

// Integer takes a whole number within bounds.
func Integer(least, most int64) Takes {
	return func(at *field.Path, value any) *field.Error {
		n, ok := value.(int64)
		if !ok {
			return WrongType(at, value, "a whole number")
		}
		if n < least || n > most {
			return Invalid(at, n, "must be from %d to %d", least, most)
		}
		return nil
	}
}

// Boolean takes true and false.
func Boolean(at *field.Path, value any) *field.Error {
	if _, ok := value.(bool); !ok {
		return WrongType(at, value, "true or false")
	}
	return nil
}

// Only takes one of true and false.
func Only(want bool) Takes {
	return func(at *field.Path, value any) *field.Error {
		if value == !want {
			return Refused(at, "%t: not supported; use %t or leave it out", !want, want)
		}
		return Boolean(at, value)
	}
}

const (
	maxQuantity = 1 << 50 // leaves room to count it in thousandths
	maxBytes    = 1 << 60
)

// plainQuantity keeps out exponents that take long to compute with.
var plainQuantity = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?([mkKMGTPE]|[KMGTPE]i|[eE][0-9])?$`)

// Quantity takes a quantity of Kubernetes that is greater than 0 and at most 2^50, as
// text or as a number.
func Quantity(at *field.Path, value any) *field.Error { return quantity(at, value, maxQuantity) }

// Bytes takes a quantity as [Quantity] does, up to 1Ei: no node has so much, so that its pod waits.
func Bytes(at *field.Path, value any) *field.Error { return quantity(at, value, maxBytes) }

func quantity(at *field.Path, value any, most int64) *field.Error {
	s, ok := value.(string)
	if n, isInt := value.(int64); isInt {
		s, ok = fmt.Sprint(n), true
	}
	if n, isFloat := value.(float64); isFloat {
		s, ok = strconv.FormatFloat(n, 'f', -1, 64), true
	}
	if !ok {
		return WrongType(at, value, "a quantity")
	}
	if !plainQuantity.MatchString(s) {
		return Invalid(at, s, "must be a quantity such as 500m, 2, 512Mi or 1.5Gi")
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 {
		return Invalid(at, s, "must be a quantity greater than 0")
	}
	if q.CmpInt64(most) > 0 { // what doesn't fit an int64 reads as 0 later
		return Invalid(at, s, "must be a quantity of at most %d", most)
	}
	return nil
}

// Object takes an object.
func Object(at *field.Path, value any) *field.Error {
	if _, ok := value.(map[string]any); !ok {
		return WrongType(at, value, "an object")
	}
	return nil
}

// List takes a list of up to limit elements.
func List(limit int) Takes {
	return func(at *field.Path, value any) *field.Error {
		l, ok := value.([]any)
		switch {
		case !ok:
			return WrongType(at, value, "a list")
		case len(l) > limit:
			return field.TooMany(at, len(l), limit)
		}
		return nil
	}
}

// WrongType returns the problem of a value that is not of the wanted type.
func WrongType(at *field.Path, value any, want string) *field.Error {
	shown, err := json.Marshal(value)
	if err != nil { // not of what a JSON decoder makes
		shown = fmt.Append(nil, value)
	}
	return field.TypeInvalid(at, field.OmitValueType{}, "must be "+want+", not "+Excerpt(string(shown)))
}
