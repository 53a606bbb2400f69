package certs

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
