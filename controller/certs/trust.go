package certs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APIServices makes the API server trust the server of an API group, in each of
// these versions.
func APIServices(group string, versions ...string) Trust {
	return func(ctx context.Context, c client.Client, bundle []byte) error {
		var errs []error
		for _, version := range versions {
			errs = append(errs, trustAPIService(ctx, c, version+"."+group, bundle))
		}
		return errors.Join(errs...)
	}
}

// trustAPIService knows of the object no more than the field that it sets.
func trustAPIService(ctx context.Context, c client.Client, name string, bundle []byte) error {
	service := new(unstructured.Unstructured)
	service.SetAPIVersion("apiregistration.k8s.io/v1")
	service.SetKind("APIService")
	if err := c.Get(ctx, client.ObjectKey{Name: name}, service); err != nil {
		return fmt.Errorf("read APIService %s: %w", name, err)
	}
	before := service.DeepCopy()
	text := base64.StdEncoding.EncodeToString(bundle)
	if was, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle"); was == text {
		return nil
	}
	if err := unstructured.SetNestedField(service.Object, text, "spec", "caBundle"); err != nil {
		return fmt.Errorf("APIService %s: %w", name, err)
	}
	if err := c.Patch(ctx, service, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("update APIService %s: %w", name, err)
	}
	return nil
}
