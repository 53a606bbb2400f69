package admission

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/test/wait"
)

// read returns a manifest with the text above it in marked lines.
func read(t *testing.T, path string) (*unstructured.Unstructured, string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var told []string
	for line := range strings.Lines(string(text)) {
		if said, ok := strings.CutPrefix(line, "#: "); ok {
			told = append(told, strings.TrimSuffix(said, "\n"))
		}
	}
	object := new(unstructured.Unstructured)
	assert.NilError(t, yaml.Unmarshal(text, &object.Object))
	object.SetNamespace("default")
	return object, strings.Join(told, "\n")
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(root + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return paths
}

// apply is kubectl apply --server-side; strict validation is kubectl's default,
// and none is that of many programs.
func apply(t *testing.T, c client.Client, object *unstructured.Unstructured, validation string) error {
	t.Helper()
	return c.Patch(t.Context(), object, client.Apply, client.FieldOwner("kubectl"), client.ForceOwnership, //nolint:staticcheck // client.Apply takes no strict validation for objects without a type
		client.FieldValidation(validation))
}

// TestRefused creates and applies each wrong manifest, in both versions of the
// API: the user reads the webhook's words, and nothing is left.
func TestRefused(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	for _, path := range glob(t, "controller/admission/testdata/refused/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			object, want := read(t, path)
			for version, validation := range map[string]string{"v1": "Strict", "v1alpha3": "Ignore"} {
				if object.GroupVersionKind().Group == "kubevirt.io" {
					object.SetAPIVersion("kubevirt.io/" + version)
				}
				err := c.Create(t.Context(), object.DeepCopy(), client.FieldValidation(validation))
				if !apierrors.IsInvalid(err) || !strings.HasSuffix(err.Error(), "denied the request: "+want) {
					t.Errorf("create as %s: said %v\nnot %s", version, err, want)
				}
				err = apply(t, c, object.DeepCopy(), validation)
				if err == nil || !strings.HasSuffix(err.Error(), "denied the request: "+want) && !untyped(err, want) {
					t.Errorf("apply as %s: said %v\nnot %s", version, err, want)
				}
				err = c.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy())
				if !apierrors.IsNotFound(err) {
					t.Errorf("%s: is there: %v", version, err)
				}
			}
		})
	}
}

// untyped reports whether an error is the API server's own about a field of the wrong type:
// server-side apply can't merge it, and asks no webhook.
func untyped(err error, want string) bool {
	_, at, ok := strings.Cut(err.Error(), "failed to create typed patch object ")
	for line := range strings.Lines(want) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		path, _, _ = strings.Cut(path, "[")
		if ok && strings.HasPrefix(path, "spec.") && strings.Contains(at, "."+path) {
			return true
		}
	}
	return false
}

// TestTaken applies each right manifest twice: the second time nothing changes, and
// the API server takes the pod that the controller makes of it.
func TestTaken(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	for _, path := range glob(t, "controller/admission/testdata/taken/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			object, _ := read(t, path)
			object.SetName("taken-" + strings.TrimSuffix(filepath.Base(path), ".yaml"))
			given := object.DeepCopy()
			assert.NilError(t, apply(t, c, object, "Strict"))
			t.Cleanup(func() {
				if err := c.Delete(context.WithoutCancel(t.Context()), object); err != nil {
					t.Error(err)
				}
			})
			generation := object.GetGeneration()
			assert.NilError(t, apply(t, c, given, "Strict"))
			if given.GetGeneration() != generation {
				t.Errorf("applied again it has generation %d", given.GetGeneration())
			}
			strategy, _, _ := unstructured.NestedString(object.Object, "spec", "runStrategy")
			starts := strategy != "Halted" && strategy != "Manual" && runsHere(t, object)
			if object.GroupVersionKind().Group == "kubevirt.io" && starts {
				hasPod(t, c, object)
			}
		})
	}
}

// runsHere reports whether a manifest names an image, as no other is set for the controller here, and no PVC,
// DataVolume or network of devices, which do not exist.
func runsHere(t *testing.T, object *unstructured.Unstructured) bool {
	t.Helper()
	text, err := object.MarshalJSON()
	assert.NilError(t, err)
	has := func(field string) bool { return bytes.Contains(text, []byte(`"`+field+`":`)) }
	return has("image") && !has("persistentVolumeClaim") && !has("dataVolume") && !has("sriov")
}

// hasPod waits for the pod of an instance, or for one of a replica set.
func hasPod(t *testing.T, c client.Client, object *unstructured.Unstructured) {
	t.Helper()
	labels := client.MatchingLabels{"vm.kubevirt.io/name": object.GetName()}
	switch object.GetKind() {
	case "VirtualMachineInstancePreset":
		return
	case "VirtualMachineInstanceReplicaSet":
		if replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); replicas == 0 {
			return
		}
		var err error
		if labels, _, err = unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels"); err != nil {
			t.Fatal(err)
		}
	}
	pods := new(unstructured.UnstructuredList)
	pods.SetAPIVersion("v1")
	pods.SetKind("PodList")
	wait.Success(t, "a pod of "+object.GetName(), func(context.Context) error {
		assert.NilError(t, c.List(t.Context(), pods, client.InNamespace("default"), labels))
		if len(pods.Items) > 0 {
			return nil
		}
		err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		return fmt.Errorf("it has none: %w: %v", err, object.Object["status"])
	})
}
