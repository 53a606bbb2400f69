package certs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// ConfigMap publishes the authorities under a key of a ConfigMap, which is made if there is none. Clients
// that can read it trust the server.
func ConfigMap(name types.NamespacedName, key string) Trust {
	return func(ctx context.Context, c client.Client, bundle []byte) error {
		m := new(corev1.ConfigMap)
		err := c.Get(ctx, name, m)
		if apierrors.IsNotFound(err) {
			m.ObjectMeta = metav1.ObjectMeta{
				Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{"app.kubernetes.io/name": "nodevirt"},
			}
			m.Data = map[string]string{key: string(bundle)}
			if err := c.Create(ctx, m); err != nil {
				return fmt.Errorf("create ConfigMap %s: %w", name, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ConfigMap %s: %w", name, err)
		}
		if m.Data[key] == string(bundle) {
			return nil
		}
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[key] = string(bundle)
		if err := c.Update(ctx, m); err != nil {
			return fmt.Errorf("update ConfigMap %s: %w", name, err)
		}
		return nil
	}
}
