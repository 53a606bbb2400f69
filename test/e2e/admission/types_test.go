package admission

import (
	"bytes"
	"context"
	"os"
	"testing"

	"gotest.tools/v3/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestTypes applies the example of a VM with an instance type and a preference: the controller, with the
// rights that it has, makes an instance that admission takes, and a pod of it.
func TestTypes(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	text, err := os.ReadFile(root + "examples/instancetype.yaml")
	assert.NilError(t, err)
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object := new(unstructured.Unstructured)
		assert.NilError(t, yaml.Unmarshal(part, &object.Object))
		if object.GetKind() != "VirtualMachineClusterInstancetype" {
			object.SetNamespace("default")
		}
		assert.NilError(t, apply(t, c, object, "Strict"))
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
