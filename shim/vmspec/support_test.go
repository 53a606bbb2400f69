package vmspec_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestSupportedPaths holds the table against the types of the API: no row may
// have a path that isn't there, and each must be in the test of all paths.
func TestSupportedPaths(t *testing.T) {
	var all any
	if err := json.Unmarshal([]byte(allVMI), &all); err != nil {
		t.Fatal(err)
	}
	used := pathsOf("spec", all)
	seen := map[string]bool{}
	for _, path := range vmspec.SupportedPaths() {
		if seen[path] {
			t.Errorf("%s stands twice in the table", path)
		}
		seen[path] = true
		if typeAt(path) == nil {
			t.Errorf("%s is not in the API", path)
		}
		// Of a part's three ways to be said one is there.
		if !slices.Contains(used, path) && !strings.HasPrefix(path, "spec.volumes[].cloudInitNoCloud.") {
			t.Errorf("%s is not in allVMI", path)
		}
	}
}

// TestUnsupportedPaths sets each field of the API that the table doesn't name,
// beside those that it does: every one must be refused by its path.
func TestUnsupportedPaths(t *testing.T) {
	supported := vmspec.SupportedPaths()
	leadsOn := func(path string) bool {
		return slices.ContainsFunc(supported, func(s string) bool {
			return s == path || strings.HasPrefix(s, path+".") || strings.HasPrefix(s, path+"[]")
		})
	}
	count := 0
	var try func(path string, of reflect.Type)
	try = func(path string, of reflect.Type) {
		of, path = element(of, path)
		if of.Kind() != reflect.Struct || !leadsOn(path) {
			return
		}
		for name, field := range fieldsOf(of) {
			at := path + "." + name
			if leadsOn(at) {
				try(at, field)
				continue
			}
			count++
			_, problems := vmspec.DecodeVMI([]byte(jsonAt(strings.TrimPrefix(at, "spec."), `"x"`)))
			want := strings.ReplaceAll(at, "[]", "[0]")
			if len(problems) != 1 || problems[0].Field != want ||
				!strings.HasPrefix(problems[0].Detail, "not supported") {
				t.Errorf("%s: %v", want, problems)
			}
		}
	}
	try("spec", reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec]())
	if count < 80 {
		t.Errorf("only %d fields were tried", count)
	}
}

// TestOwnEncoding decodes what the types themselves encode: fields without
// omitempty must not count as set.
func TestOwnEncoding(t *testing.T) {
	spec, problems := vmspec.DecodeVMI([]byte(allVMI))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	again, problems := vmspec.DecodeVMI(text)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", text, problems)
	}
	if twice, _ := json.Marshal(again); string(twice) != string(text) {
		t.Errorf("%s became %s", text, twice)
	}
}

// pathsOf lists the paths in a JSON value, "[]" for each element.
func pathsOf(path string, value any) []string {
	paths := []string{path}
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			paths = append(paths, pathsOf(path+"."+key, v)...)
		}
	case []any:
		for _, v := range value {
			paths = append(paths, pathsOf(path+"[]", v)...)
		}
	}
	return paths
}

// typeAt is the type of a field of a VMI; nil if there is none.
func typeAt(path string) reflect.Type {
	t := reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec]()
	for _, name := range strings.Split(path, ".")[1:] {
		name, _ = strings.CutSuffix(name, "[]")
		t, _ = element(t, "")
		if t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t = fieldsOf(t)[name]; t == nil {
			return nil
		}
	}
	return t
}

// element follows pointers and lists.
func element(t reflect.Type, path string) (reflect.Type, string) {
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

// fieldsOf are the JSON fields of a struct, inlined ones included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
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
			maps.Copy(fields, fieldsOf(f.Type))
		}
	}
	return fields
}

// jsonAt wraps a value into the objects and lists of its path.
func jsonAt(path, value string) string {
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
