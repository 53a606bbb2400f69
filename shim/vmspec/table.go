package vmspec

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// row is a supported path with the values that it takes.
type row struct {
	path string
	takes
}

// whole is a supported path whose value is checked as one, and not field by
// field: a map with keys of the author's, or a type of Kubernetes' own.
type whole struct {
	path string
	// is says what such a value is, for the docs.
	is    string
	check func(at *field.Path, value any) field.ErrorList
}

// table is what one reader supports of an object.
type table struct {
	patterns map[string]takes
	wholes   map[string]whole
	// fresh returns a new value of the object's type in the API, which has the
	// names of all fields.
	fresh func() any
}

func newTable(fresh func() any, rows []row, wholes []whole) table {
	t := table{patterns: map[string]takes{"": object}, wholes: map[string]whole{}, fresh: fresh}
	for _, r := range rows {
		t.leadTo(r.path)
	}
	for _, w := range wholes {
		t.leadTo(w.path)
		t.wholes[w.path] = w
	}
	for _, r := range rows {
		t.patterns[r.path] = r.takes
	}
	return t
}

// leadTo adds the objects and lists on the way to a path.
func (t table) leadTo(path string) {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		upTo := strings.Join(steps[:i], ".")
		if upTo != "" {
			upTo += "."
		}
		name, isList := strings.CutSuffix(step, "[]")
		if isList {
			t.addDefault(upTo+name, list(maxDevices))
		}
		t.addDefault(upTo+step, object)
	}
}

func (t table) addDefault(path string, takes takes) {
	if _, ok := t.patterns[path]; !ok {
		t.patterns[path] = takes
	}
}

// check returns a decoded JSON value without what is wrong with it, and what that is.
func (t table) check(root *field.Path, tree any) (any, field.ErrorList) {
	problems := t.unknownFields(root, tree)
	c := treeCheck{table: t}
	sound, _ := c.value(root, "", tree)
	return sound, append(problems, without(c.problems, problems)...)
}

// unknownFields tells fields that the API doesn't have from those that aren't
// supported here. It decodes the tree without its values: some, unchecked, take
// the types of the API very long, such as a quantity with a large exponent.
func (t table) unknownFields(root *field.Path, tree any) field.ErrorList {
	text, err := json.Marshal(skeleton(tree))
	if err != nil {
		return nil // nor is it a tree for treeCheck
	}
	strict, _ := kjson.UnmarshalStrict(text, t.fresh()) // an error is treeCheck's to name
	return strictProblems(root, strict)
}

// skeleton is a decoded JSON value with null for all that isn't an object or a list.
func skeleton(value any) any {
	switch value := value.(type) {
	case map[string]any:
		bones := make(map[string]any, len(value))
		for key, v := range value {
			bones[key] = skeleton(v)
		}
		return bones
	case []any:
		bones := make([]any, len(value))
		for i, v := range value {
			bones[i] = skeleton(v)
		}
		return bones
	}
	return nil
}

// index is that of a list's element in a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// strictProblems are the decoder's findings: unknown and duplicate fields.
func strictProblems(root *field.Path, strict []error) field.ErrorList {
	var problems field.ErrorList
	for _, err := range strict {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			problems = append(problems, refused(root, "%s", excerpt(err.Error())))
			continue
		}
		kind, _, _ := strings.Cut(err.Error(), ` "`)
		if way := wayOut(index.ReplaceAllString(at.FieldPath(), "[]")); way != "" {
			kind += "; " + way
		}
		problems = append(problems, refused(root.Child(at.FieldPath()), "%s", kind))
	}
	return problems
}

// without returns the problems at paths where there isn't one already.
func without(problems, have field.ErrorList) field.ErrorList {
	known := sets.New[string]()
	for _, p := range have {
		known.Insert(p.Field)
	}
	return slices.DeleteFunc(problems, func(p *field.Error) bool { return known.Has(p.Field) })
}

// treeCheck holds a decoded JSON value against the table of what is supported.
type treeCheck struct {
	table
	problems field.ErrorList
}

// value returns what is sound of a value, and whether that is anything.
func (c *treeCheck) value(at *field.Path, pattern string, value any) (any, bool) {
	if value == nil && pattern != "" {
		return nil, true // null is unset
	}
	if w, ok := c.wholes[pattern]; ok {
		problems := w.check(at, value)
		c.problems = append(c.problems, problems...)
		return value, len(problems) == 0
	}
	takes, ok := c.patterns[pattern]
	problem := unsupported(at, pattern)
	if ok {
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
			v, ok := c.value(at.Child(key), strings.TrimPrefix(pattern+"."+key, "."), value[key])
			if ok {
				sound[key] = v
			}
		}
		return sound, true
	case []any:
		sound := make([]any, len(value)) // nil for elements that aren't, so that indices stay
		for i, element := range value {
			sound[i], _ = c.value(at.Index(i), pattern+"[]", element)
		}
		return sound, true
	}
	return value, true
}

func unsupported(at *field.Path, pattern string) *field.Error {
	if way := wayOut(pattern); way != "" {
		return refused(at, "not supported; %s", way)
	}
	return refused(at, "not supported")
}
