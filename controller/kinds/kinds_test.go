package kinds_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
)

// TestTable: each kind is there once, and its list and its object belong together.
func TestTable(t *testing.T) {
	seen, lists := map[string]bool{}, map[string]bool{}
	for _, k := range kinds.All() {
		if seen[k.Name()] {
			t.Errorf("%s is in the table twice", k.Name())
		}
		seen[k.Name()] = true
		if list := reflect.TypeOf(k.List()).Elem().Name(); list != k.Name()+"List" {
			t.Errorf("%s has lists of type %s", k.Name(), list)
		}
		short := len(k.CRD.ShortNames) > 0 || k.Name() == "MigrationPolicy" // KubeVirt has none for it
		if k.Admission.Check == nil || len(k.Access.Object) == 0 || !short {
			t.Errorf("%s has no check, no permissions or no short name", k.Name())
		}
		if k.Cached && !k.CRD.Status && !k.CRD.ClusterScoped {
			t.Errorf("%s has a status that authors may write, which the bound of the cache does not count", k.Name())
		}
		for _, l := range k.Fields {
			if lists[l.Name] {
				t.Errorf("the docs have two lists %s", l.Name)
			}
			lists[l.Name] = true
		}
	}
}

// TestFields holds the lists of supported fields against the types of the API.
func TestFields(t *testing.T) {
	for _, k := range kinds.All() {
		spec, ok := reflect.TypeOf(k.Object()).Elem().FieldByName("Spec")
		if !ok {
			t.Fatalf("%s has no spec", k.Name())
		}
		for _, l := range k.Fields {
			seen := map[string]bool{}
			for _, path := range l.Fields.Paths("spec.") {
				if seen[path] {
					t.Errorf("%s: %s is in the list twice", l.Name, path)
				}
				seen[path] = true
				if fieldstest.TypeAt(spec.Type, path) == nil {
					t.Errorf("%s: %s is not in the API", l.Name, path)
				}
			}
			for _, r := range l.Fields.Rows {
				if r.Takes == nil {
					t.Errorf("%s: %s has no check of its value", l.Name, r.Path)
				}
			}
			if problems := l.Check(field.NewPath("spec"), "no object"); len(problems) == 0 {
				t.Errorf("%s takes what is no object", l.Name)
			}
		}
	}
}
