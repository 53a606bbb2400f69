package admission

import (
	"bytes"
	"context"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestTypes applies the example of a VM with an instance type and a preference: the controller, with the
// rights that it has, makes an instance that admission takes, and a pod of it.
func TestTypes(t *testing.T) {
	c, err := newClient(suite.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(root + "examples/instancetype.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(part, &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.GetKind() != "VirtualMachineClusterInstancetype" {
			object.SetNamespace("default")
		}
		if err := apply(t, c, object, "Strict"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
		if object.GetKind() == "VirtualMachine" {
			hasPod(t, c, object)
		}
	}
}
