package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/test/needs"
)

// generated returns the files of a folder, which holds nothing else.
func generated(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// TestCRDs holds the files against the table of kinds and the types in Go.
func TestCRDs(t *testing.T) {
	needs.Parts(t, "bin/crds")
	fresh := t.TempDir()
	input, err := json.Marshal(kinds.Definitions())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../bin/crds", fresh)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	if diff := cmp.Diff(generated(t, fresh), generated(t, "crds")); diff != "" {
		t.Errorf("the CRDs are out of date; run make generate (-types +files):\n%s", diff)
	}
}

// TestCRDDescriptions: kubectl explain shows a text for nearly every field of a stored
// version. KubeVirt itself describes no more.
func TestCRDDescriptions(t *testing.T) {
	for name, text := range generated(t, "crds") {
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema described }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatal(err)
		}
		with, without := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.count()
		few := name == "migrationpolicies.yaml" || strings.HasPrefix(name, "virtualmachinesnapshots") ||
			strings.HasPrefix(name, "virtualmachinerestores") || strings.HasPrefix(name, "virtualmachineclones") ||
			strings.HasPrefix(name, "virtualmachineexports") || strings.HasPrefix(name, "virtualmachinebackup") || name == "kubevirts.yaml"
		if few && 2*with >= without { // KubeVirt describes a part
			continue
		}
		if with < 8*without {
			t.Errorf("%s: %d fields with a description, %d without", name, with, without)
		}
	}
}

// described is a schema, as far as it has descriptions.
type described struct {
	Description string
	Properties  map[string]described
	Items       *described
}

func (d described) count() (with, without int) {
	for _, property := range d.Properties {
		if property.Description != "" {
			with++
		} else {
			without++
		}
		more, less := property.count()
		with, without = with+more, without+less
	}
	if d.Items != nil {
		more, less := d.Items.count()
		with, without = with+more, without+less
	}
	return with, without
}

// TestCRDVersions: of machines v1 is stored, v1alpha3 served; clones, exports, pools and snapshots have their own
// versions. And a plain kubectl apply, which keeps an object in an annotation, has room for it there.
func TestCRDVersions(t *testing.T) {
	for name, text := range generated(t, "crds") {
		object, err := yaml.ToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(object) > 256<<10 {
			t.Errorf("%s has %d bytes; an object's annotations have at most 256 KiB", name, len(object))
		}
		var crd struct {
			Spec struct {
				Group    string
				Versions []version
			}
		}
		if err := json.Unmarshal(object, &crd); err != nil {
			t.Fatal(err)
		}
		want := []version{{Name: "v1", Served: true, Storage: true}, {Name: "v1alpha3", Served: true}}
		switch crd.Spec.Group {
		case "instancetype.kubevirt.io":
			want = []version{{Name: "v1beta1", Served: true, Storage: true}}
		case "backup.kubevirt.io", "migrations.kubevirt.io":
			want = []version{{Name: "v1alpha1", Served: true, Storage: true}}
		case "export.kubevirt.io":
			want = []version{{Name: "v1", Served: true, Storage: true}, {Name: "v1beta1", Served: true}}
		case "clone.kubevirt.io", "pool.kubevirt.io", "snapshot.kubevirt.io":
			want = []version{{Name: "v1beta1", Served: true, Storage: true}, {Name: "v1alpha1", Served: true}}
		}
		if diff := cmp.Diff(want, crd.Spec.Versions); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

type version struct {
	Name            string
	Served, Storage bool
}
