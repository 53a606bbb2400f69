package certs

import (
	"log/slog"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/test/apiserver"
)

// TestKeeper runs two replicas' keepers by hand, a look at a time, against a real API server.
func TestKeeper(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.ForTest(t)
	c, err := client.New(server.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	none, port := admissionregistrationv1.SideEffectClassNone, int32(443)
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: "a.nodevirt.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Name: "x", Namespace: "default", Port: &port},
		},
	}
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook},
	}
	if err := c.Create(t.Context(), webhooks); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	newKeeper := func() *Keeper {
		return &Keeper{
			Client: c, Secret: types.NamespacedName{Namespace: "default", Name: "tls"},
			DNSName: "x.default.svc", Trust: []Trust{ValidatingWebhooks("hooks")},
			Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		}
	}
	look := func(k *Keeper) {
		t.Helper()
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// served checks that the API server, which has the bundle, trusts who serves.
	served := func(k *Keeper) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks); err != nil {
			t.Fatal(err)
		}
		cert, err := k.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, cert.Leaf, content{keyAuthorities: webhooks.Webhooks[0].ClientConfig.CABundle}, k.DNSName, now)
	}
	one, two := newKeeper(), newKeeper()
	if _, err := one.GetCertificate(nil); err == nil {
		t.Error("serves before it looked")
	}
	look(one)
	look(two)
	served(one)
	served(two)
	version := webhooks.ResourceVersion
	look(one)
	look(two)
	served(one)
	if webhooks.ResourceVersion != version {
		t.Error("wrote what was there")
	}
	// Each goes on with what it has until it looks.
	for range 40 {
		now = now.Add(27 * day)
		look(one)
		served(one)
		served(two)
		look(two)
		served(one)
		served(two)
	}
	// Somebody takes away what was written.
	webhooks.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), webhooks); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tls"}}); err != nil {
		t.Fatal(err)
	}
	look(two)
	served(two)
	// With nowhere to write it the certificate that is trusted stays.
	if err := c.Delete(t.Context(), webhooks); err != nil {
		t.Fatal(err)
	}
	before, err := two.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(80 * day)
	if err := two.look(t.Context()); err == nil {
		t.Error("looked without an error")
	}
	if after, err := two.GetCertificate(nil); err != nil || after != before {
		t.Errorf("serves another certificate: %v", err)
	}
}
