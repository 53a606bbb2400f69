package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// crdObject matches a CRD in a manifest or in a template of one.
var crdObject = regexp.MustCompile(`(?m)^kind: CustomResourceDefinition$`)

// TestRemovalKeepsObjects: removing the software deletes no CRD, and with it every VM. So CRDs are in their own folder
// alone, and no kustomization or template of the chart has one.
func TestRemovalKeepsObjects(t *testing.T) {
	kustomizations, crds := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch inCRDs := filepath.Dir(path) == "crds"; {
		case inCRDs && filepath.Base(path) == "kustomization.yaml":
			t.Errorf("%s: kubectl apply -f cannot read the folder with it", path)
		case crdObject.Match(text) != inCRDs:
			t.Errorf("%s: CRDs belong into deploy/crds, which holds nothing else", path)
		case inCRDs:
			crds++
		}
		if filepath.Base(path) != "kustomization.yaml" {
			return nil
		}
		kustomizations++
		var k struct{ Resources, Components, Bases []string }
		if err := yaml.Unmarshal(text, &k); err != nil {
			return err
		}
		for _, resource := range append(append(k.Resources, k.Components...), k.Bases...) {
			if strings.Contains(resource, "crds") {
				t.Errorf("%s: %s: deleting the kustomization would delete every VM", path, resource)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if kustomizations < 3 || crds < 10 {
		t.Errorf("found %d kustomizations and %d CRDs", kustomizations, crds)
	}
}
