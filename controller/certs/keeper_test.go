package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/apiserver"
)

// TestConfigMap: the authorities are in a ConfigMap, whose other keys stay, as long as a certificate is
// needed.
func TestConfigMap(t *testing.T) {
	server := apiserver.ForTest(t)
	c, err := client.New(server.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "authorities"}
	needed := false
	k := &Keeper{
		Client: c, Secret: types.NamespacedName{Namespace: "default", Name: "tls"}, DNSName: "x.default.svc",
		Needed: func(context.Context) (bool, error) { return needed, nil },
		Trust:  []Trust{ConfigMap(key, "bundle")}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if wait := k.step(t.Context()); wait != unneeded {
		t.Errorf("looks again after %s", wait)
	}
	if err := c.Get(t.Context(), k.Secret, new(corev1.Secret)); !apierrors.IsNotFound(err) {
		t.Errorf("made a certificate that is not needed: %v", err)
	}
	needed = true
	m := new(corev1.ConfigMap)
	published := func() {
		t.Helper()
		if wait := k.step(t.Context()); wait != often {
			t.Fatalf("looks again after %s", wait)
		}
		cert, err := k.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, m); err != nil {
			t.Fatal(err)
		}
		verify(t, cert.Leaf, content{keyAuthorities: []byte(m.Data["bundle"])}, k.DNSName, time.Now())
	}
	published()
	m.Data = map[string]string{"other": "kept"}
	if err := c.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	published()
	if m.Data["other"] != "kept" {
		t.Errorf("data %v", m.Data)
	}
	version := m.ResourceVersion
	published()
	if m.ResourceVersion != version {
		t.Error("changed the ConfigMap without a reason")
	}
}

// TestKeeper runs two replicas' keepers by hand, a look at a time, against a real API server.
func TestKeeper(t *testing.T) {
	server := apiserver.ForTest(t)
	c, err := client.New(server.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	service := new(unstructured.Unstructured)
	service.SetUnstructuredContent(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.example.com"},
		"spec": map[string]any{
			"group": "example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"service": map[string]any{"name": "x", "namespace": "default"},
		},
	})
	if err := c.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	bundle := func() []byte {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			t.Fatal(err)
		}
		text, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
		pem, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return pem
	}
	now := time.Now()
	newKeeper := func() *Keeper {
		return &Keeper{
			Client: c, Secret: types.NamespacedName{Namespace: "default", Name: "tls"},
			DNSName: "x.default.svc", Trust: []Trust{APIServices("example.com", "v1")},
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
		cert, err := k.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, cert.Leaf, content{keyAuthorities: bundle()}, k.DNSName, now)
	}
	one, two := newKeeper(), newKeeper()
	if _, err := one.GetCertificate(nil); err == nil {
		t.Error("serves before it looked")
	}
	look(one)
	look(two)
	served(one)
	served(two)
	written := bundle()
	look(one)
	look(two)
	served(one)
	if !bytes.Equal(bundle(), written) {
		t.Error("changed the bundle without a reason")
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
	// A user applies the manifests again, which have no bundle.
	unstructured.RemoveNestedField(service.Object, "spec", "caBundle")
	if err := c.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tls"}}); err != nil {
		t.Fatal(err)
	}
	look(two)
	served(two)
	// With nowhere to write it the certificate that is trusted stays.
	if err := c.Delete(t.Context(), service); err != nil {
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
