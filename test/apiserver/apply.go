package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply creates the objects of YAML files, which patterns may name, and waits for
// CustomResourceDefinitions to be served.
func (s *Server) Apply(ctx context.Context, patterns ...string) error {
	c, err := client.New(s.Config(), client.Options{})
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err == nil && len(files) == 0 {
			err = os.ErrNotExist
		}
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		for _, file := range files {
			if err := applyFile(ctx, c, file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

func applyFile(ctx context.Context, c client.Client, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	documents := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		object := new(unstructured.Unstructured)
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(object.Object) == 0:
			continue
		}
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if object.GetKind() == "CustomResourceDefinition" {
			if err := established(ctx, c, object); err != nil {
				return err
			}
		}
	}
}

// established waits until the API server serves a CustomResourceDefinition.
func established(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		status, _ := crd.Object["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any) // null at first
		for _, one := range conditions {
			if is, ok := one.(map[string]any); ok && is["type"] == "Established" && is["status"] == "True" && discovered(c, crd) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not served: %w", crd.GetName(), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// discovered reports whether a client finds the kind, which is a moment after the API
// server serves it.
func discovered(c client.Client, crd *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	return err == nil
}
