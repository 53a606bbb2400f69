// Package fieldstest has what tests of field tables share: the types and the JSON
// at the paths of fields.
package fieldstest

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// TypeAt returns the type of the field at a path below a type of the API; nil if
// there is no such field. The path's first step is the name of the type itself.
func TypeAt(t reflect.Type, path string) reflect.Type {
	for _, name := range strings.Split(path, ".")[1:] {
		name, _ = strings.CutSuffix(name, "[]")
		t, _ = Element(t, "")
		if t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t = FieldsOf(t)[name]; t == nil {
			return nil
		}
	}
	return t
}

// Element follows pointers and lists, and adds "[]" to the path for each list.
func Element(t reflect.Type, path string) (reflect.Type, string) {
	for {
		switch t.Kind() {
		case reflect.Slice:
			path += "[]"
		case reflect.Pointer:
		default:
			return t, path
		}
		t = t.Elem()
	}
}

// FieldsOf returns the JSON fields of a struct, inlined ones included.
func FieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			fields[name] = f.Type
		case f.Anonymous:
			inlined, _ := Element(f.Type, "")
			maps.Copy(fields, FieldsOf(inlined))
		}
	}
	return fields
}

// JSONAt wraps a JSON value into the objects and lists of its path.
func JSONAt(path, value string) string {
	steps := strings.Split(path, ".")
	for _, step := range slices.Backward(steps) {
		name, isList := strings.CutSuffix(step, "[]")
		if isList {
			value = "[" + value + "]"
		}
		value = `{"` + name + `": ` + value + `}`
	}
	return value
}
