package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MutatingWebhooks has the API server trust the webhooks of the configuration of
// that name.
func MutatingWebhooks(name string) Trust {
	return func(ctx context.Context, c client.Client, bundle []byte) error {
		configuration := new(admissionregistrationv1.MutatingWebhookConfiguration)
		return write(ctx, c, name, configuration, func() bool {
			changed := false
			for i := range configuration.Webhooks {
				changed = setBundle(&configuration.Webhooks[i].ClientConfig, bundle) || changed
			}
			return changed
		})
	}
}

// ValidatingWebhooks is the same for the other kind of configuration.
func ValidatingWebhooks(name string) Trust {
	return func(ctx context.Context, c client.Client, bundle []byte) error {
		configuration := new(admissionregistrationv1.ValidatingWebhookConfiguration)
		return write(ctx, c, name, configuration, func() bool {
			changed := false
			for i := range configuration.Webhooks {
				changed = setBundle(&configuration.Webhooks[i].ClientConfig, bundle) || changed
			}
			return changed
		})
	}
}

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

// write reads an object, and writes it if set changes it.
func write(ctx context.Context, c client.Client, name string, object client.Object, set func() bool) error {
	if err := c.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return fmt.Errorf("read %T %s: %w", object, name, err)
	}
	if !set() {
		return nil
	}
	if err := c.Update(ctx, object); err != nil {
		return fmt.Errorf("update %T %s: %w", object, name, err)
	}
	return nil
}

func setBundle(to *admissionregistrationv1.WebhookClientConfig, bundle []byte) bool {
	if bytes.Equal(to.CABundle, bundle) {
		return false
	}
	to.CABundle = bundle
	return true
}
