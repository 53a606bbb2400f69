package admission

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
)

// TestCertificate: the controller has made its certificate, and configured the API server to trust
// it; the key is in its own Secret and nowhere else.
func TestCertificate(t *testing.T) {
	scheme, err := api.NewScheme()
	assert.NilError(t, err)
	c, err := client.New(suite.server.Config(), client.Options{Scheme: scheme})
	assert.NilError(t, err)
	var secret corev1.Secret
	assert.NilError(t, c.Get(t.Context(), types.NamespacedName{Namespace: system, Name: "nodevirt-controller-tls"}, &secret))
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		t.Fatalf("no certificate in %v", secret.Data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	assert.NilError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	_, err = cert.Verify(x509.VerifyOptions{
		DNSName: "nodevirt-controller.nodevirt.svc", Roots: roots, CurrentTime: time.Now().Add(30 * 24 * time.Hour),
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"v1.admission.nodevirt.io", "v1.subresources.kubevirt.io"} {
		service := new(unstructured.Unstructured)
		service.SetAPIVersion("apiregistration.k8s.io/v1")
		service.SetKind("APIService")
		assert.NilError(t, c.Get(t.Context(), types.NamespacedName{Name: name}, service))
		text, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
		bundle, err := base64.StdEncoding.DecodeString(text)
		assert.NilError(t, err)
		if !bytes.Equal(bundle, secret.Data["ca.crt"]) || bytes.Contains(bundle, []byte("KEY")) {
			t.Errorf("%s: the API server trusts %s", name, bundle)
		}
	}
}
