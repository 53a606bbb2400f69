package vmspec_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

var vmiSpec = reflect.TypeFor[kubevirt.VirtualMachineInstanceSpec]()

// TestSupportedPaths holds the table against the types of the API: no row may
// have a path that isn't there, and each must be in the test of all paths.
func TestSupportedPaths(t *testing.T) {
	var all any
	if err := json.Unmarshal([]byte(allVMI), &all); err != nil {
		t.Fatal(err)
	}
	used := pathsOf("spec", all)
	seen := map[string]bool{}
	for _, path := range vmspec.Supported().Paths("spec.") {
		if seen[path] {
			t.Errorf("%s is in the table twice", path)
		}
		seen[path] = true
		if fieldstest.TypeAt(vmiSpec, path) == nil {
			t.Errorf("%s is not in the API", path)
		}
		// Of a part's three ways to be said one is there, and of two like volumes one.
		if !slices.Contains(used, path) && !strings.HasPrefix(path, "spec.volumes[].cloudInit") && path != "spec.volumes[].sysprep.configMap.name" &&
			path != "spec.domain.firmware.bootloader.bios.useSerial" &&
			path != "spec.domain.cpu.maxSockets" && path != "spec.domain.memory.maxGuest" && // of VMs without dedicated CPUs and huge pages
			!strings.HasPrefix(path, "spec.domain.launchSecurity.") && // of VMs with few other things
			!strings.HasPrefix(path, "spec.domain.devices.interfaces[].portRanges") && // of cards without ports
			!strings.HasSuffix(path, ".propagationMethod.configDrive") {
			t.Errorf("%s is not in allVMI", path)
		}
	}
}

// TestUnsupportedPaths sets each field of the API that the table doesn't name,
// beside those that it does: every one must be refused by its path.
func TestUnsupportedPaths(t *testing.T) {
	supported := vmspec.Supported().Paths("spec.")
	leadsOn := func(path string) bool {
		return slices.ContainsFunc(supported, func(s string) bool {
			return s == path || strings.HasPrefix(s, path+".") || strings.HasPrefix(s, path+"[]")
		})
	}
	count := 0
	var try func(path string, of reflect.Type)
	try = func(path string, of reflect.Type) {
		of, path = fieldstest.Element(of, path)
		if of.Kind() != reflect.Struct || !leadsOn(path) {
			return
		}
		for name, field := range fieldstest.FieldsOf(of) {
			at := path + "." + name
			if leadsOn(at) {
				try(at, field)
				continue
			}
			count++
			_, problems := vmspec.DecodeVMI([]byte(fieldstest.JSONAt(strings.TrimPrefix(at, "spec."), `"x"`)))
			want := strings.ReplaceAll(at, "[]", "[0]")
			if len(problems) != 1 || problems[0].Field != want ||
				!strings.HasPrefix(problems[0].Detail, "not supported") {
				t.Errorf("%s: %v", want, problems)
			}
		}
	}
	try("spec", vmiSpec)
	if count < 20 {
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
