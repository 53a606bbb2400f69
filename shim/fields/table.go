package fields

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Row is a supported field and the check of its value. In a path "[]" stands for
// an element of a list.
type Row struct {
	Path  string
	Takes Takes
}

// At returns the row of a field.
func At(path string, takes Takes) Row { return Row{Path: path, Takes: takes} }

// Whole is a supported field whose value is checked as one: a map whose keys the
// author chooses, or a type of Kubernetes.
type Whole struct {
	Path string
	// Is describes the value in the docs.
	Is    string
	Check func(at *field.Path, value any) field.ErrorList
}

// Supported lists the fields of an object that a reader supports. An object or a
// list on the way to a field needs a row only if its bound differs from
// [MaxElements].
type Supported struct {
	Rows   []Row
	Wholes []Whole
	// Hints name what to use instead, by the paths of fields that are not supported.
	Hints map[string]string
}

// And returns the fields of both.
func (s Supported) And(more Supported) Supported {
	hints := maps.Clone(s.Hints)
	if hints == nil {
		hints = map[string]string{}
	}
	maps.Copy(hints, more.Hints)
	return Supported{
		Rows:   slices.Concat(s.Rows, more.Rows),
		Wholes: slices.Concat(s.Wholes, more.Wholes),
		Hints:  hints,
	}
}

// Below returns the rows that begin with a prefix. All hints stay.
func (s Supported) Below(prefix string) Supported {
	below := Supported{Hints: s.Hints}
	for _, r := range s.Rows {
		if strings.HasPrefix(r.Path, prefix) {
			below.Rows = append(below.Rows, r)
		}
	}
	return below
}

// Takes returns the check of the field at a path; nil for a path without a row.
func (s Supported) Takes(path string) Takes {
	for _, r := range s.Rows {
		if r.Path == path {
			return r.Takes
		}
	}
	return nil
}

// Paths returns the paths of all fields, in the order of the lists and with a
// prefix such as "spec.".
func (s Supported) Paths(prefix string) []string {
	var all []string
	for _, r := range s.Rows {
		all = append(all, prefix+r.Path)
	}
	for _, w := range s.Wholes {
		all = append(all, prefix+w.Path)
	}
	return all
}

// Table checks objects of one type.
type Table struct {
	patterns map[string]Takes
	wholes   map[string]Whole
	hints    map[string]string
	fresh    func() any
}

// Table returns the table of the fields. Fresh returns a new value of the
// object's type in the API, which has the names of all fields.
func (s Supported) Table(fresh func() any) Table {
	t := Table{patterns: map[string]Takes{"": Object}, wholes: map[string]Whole{}, hints: s.Hints, fresh: fresh}
	for _, r := range s.Rows {
		t.leadTo(r.Path)
	}
	for _, w := range s.Wholes {
		t.leadTo(w.Path)
		t.wholes[w.Path] = w
	}
	for _, r := range s.Rows {
		t.patterns[r.Path] = r.Takes
	}
	return t
}

// leadTo adds the objects and lists on the way to a path.
func (t Table) leadTo(path string) {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		upTo := strings.Join(steps[:i], ".")
		if upTo != "" {
			upTo += "."
		}
		name, isList := strings.CutSuffix(step, "[]")
		if isList {
			t.addDefault(upTo+name, List(MaxElements))
		}
		t.addDefault(upTo+step, Object)
	}
}

func (t Table) addDefault(path string, takes Takes) {
	if _, ok := t.patterns[path]; !ok {
		t.patterns[path] = takes
	}
}

// MaxFound bounds the problems that one check collects. Further ones are not
// looked for: an object may have hundreds of thousands.
const MaxFound = 200

// Check returns the sound part of a decoded JSON value, and the problems of the
// rest, at most 200. Root is the value's own path.
func (t Table) Check(root *field.Path, tree any) (any, field.ErrorList) {
	c := treeCheck{Table: t}
	sound, _ := c.value(root, "", tree)
	unknown := t.unknownFields(root, tree)
	problems := append(unknown, Without(c.problems, unknown)...)
	return sound, problems[:min(len(problems), MaxFound)]
}

// unknownFields distinguishes fields that the API does not have from those that
// are not supported here. It decodes the tree without its values: some values,
// such as a quantity with a large exponent, take the API's types very long. The
// decoder makes an error of each unknown field, so it gets only so many of the
// fields that the table does not have.
func (t Table) unknownFields(root *field.Path, tree any) field.ErrorList {
	s := skeleton{Table: t, left: MaxFound}
	bones, _ := s.of("", true, tree)
	text, err := json.Marshal(bones)
	if err != nil {
		return nil // treeCheck refuses such a tree
	}
	strict, _ := kjson.UnmarshalStrict(text, t.fresh()) // treeCheck reports other errors
	return t.Strict(root, strict)
}

// skeleton copies the structure of a decoded JSON value.
type skeleton struct {
	Table
	// left is the number of fields that may be copied of those that the table does
	// not have.
	left int
}

// of returns the skeleton of a value: null for all that isn't an object or a list.
// Known says that the table has the value. Of objects it copies the fields that
// the table does not have, and those that lead to one. It reports whether there
// are any.
func (s *skeleton) of(pattern string, known bool, value any) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		bones, some := map[string]any{}, !known
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := below(pattern, key)
			has := known && s.patterns[at] != nil
			if !has {
				if s.left <= 0 {
					continue
				}
				s.left--
			}
			if child, found := s.of(at, has, value[key]); found || !has {
				bones[key], some = child, true
			}
		}
		return bones, some
	case []any:
		bones, some := make([]any, len(value)), !known
		for i, element := range value {
			child, found := s.of(pattern+"[]", known, element)
			if found {
				bones[i], some = child, true
			}
		}
		return bones, some
	}
	return nil, !known
}

// below returns the pattern of a field of an object. No table has that of a key
// which looks like a path.
func below(pattern, key string) string {
	if strings.ContainsAny(key, ".[]") {
		return pattern + "[.]"
	}
	return strings.TrimPrefix(pattern+"."+key, ".")
}

// index matches the index of a list's element in a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// Strict turns the errors of a strict decoder into problems: unknown and
// duplicate fields.
func (t Table) Strict(root *field.Path, strict []error) field.ErrorList {
	var problems field.ErrorList
	for _, err := range strict {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			problems = append(problems, Refused(root, "%s", Excerpt(err.Error())))
			continue
		}
		kind, _, _ := strings.Cut(err.Error(), ` "`)
		if hint := t.hints[index.ReplaceAllString(at.FieldPath(), "[]")]; hint != "" {
			kind += "; " + hint
		}
		problems = append(problems, Refused(root.Child(at.FieldPath()), "%s", kind))
	}
	return problems
}

// treeCheck is one pass of a table over a decoded JSON value.
type treeCheck struct {
	Table
	problems field.ErrorList
}

// value returns the sound part of a value, and whether there is any.
func (c *treeCheck) value(at *field.Path, pattern string, value any) (any, bool) {
	if len(c.problems) > MaxFound {
		return nil, false
	}
	if value == nil && pattern != "" {
		return nil, true // null is unset
	}
	if w, ok := c.wholes[pattern]; ok {
		problems := w.Check(at, value)
		c.problems = append(c.problems, problems...)
		return value, len(problems) == 0
	}
	problem := c.unsupported(at, pattern)
	if takes := c.patterns[pattern]; takes != nil {
		problem = takes(at, value)
	}
	if problem != nil {
		c.problems = append(c.problems, problem)
		return nil, false
	}
	switch value := value.(type) {
	case map[string]any:
		sound := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			v, ok := c.value(at.Child(key), below(pattern, key), value[key])
			if ok {
				sound[key] = v
			}
		}
		return sound, true
	case []any:
		sound := make([]any, len(value)) // nil for elements that aren't sound, so that indices stay
		for i, element := range value {
			sound[i], _ = c.value(at.Index(i), pattern+"[]", element)
		}
		return sound, true
	}
	return value, true
}

func (c *treeCheck) unsupported(at *field.Path, pattern string) *field.Error {
	if hint := c.hints[pattern]; hint != "" {
		return Refused(at, "not supported; %s", hint)
	}
	return Refused(at, "not supported")
}

// CheckAs checks a tree and decodes its sound part. The result is nil only if
// that cannot be decoded.
func CheckAs[T any](t Table, at *field.Path, tree any) (*T, field.ErrorList) {
	sound, problems := t.Check(at, tree)
	into := new(T)
	if err := Decode(sound, into); err != nil {
		return nil, append(problems, Invalid(at, field.OmitValueType{}, "%s", Excerpt(err.Error())))
	}
	return into, problems
}

// Decode decodes a tree into a value of the API.
func Decode(tree, into any) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into)
}
