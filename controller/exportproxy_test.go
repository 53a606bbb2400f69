package controller_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/export"
)

// TestExportProxy: once the export proxy's Service exists, the controller keeps its certificate and
// publishes the authority. An Ingress of the Service gives exports links for clients outside.
func TestExportProxy(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.startWith(controller.Options{
		StubImage: "registry.example.com/any:1", ExportImage: "registry.example.com/any:1", ExportProxyNamespace: namespace,
	})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: export.ProxyService, Port: networkingv1.ServiceBackendPort{Number: 443},
	}}
	service := &corev1.Service{ObjectMeta: meta(export.ProxyService), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	ingress := &networkingv1.Ingress{ObjectMeta: meta("exports"), Spec: networkingv1.IngressSpec{
		DefaultBackend: &backend, TLS: []networkingv1.IngressTLS{{Hosts: []string{"exports.example.com"}, SecretName: "virt-exportproxy-tls"}},
	}}
	pvc := w.boundPVC("outside", nil)
	w.export("outside", pvc, "", "PersistentVolumeClaim")
	if e := w.exported("outside"); e.Status.Links.External != nil {
		t.Errorf("links %+v", e.Status.Links.External)
	}
	for _, o := range []client.Object{service, ingress} {
		if err := w.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{
			service, ingress, &corev1.Secret{ObjectMeta: meta("virt-exportproxy-tls")}, &corev1.ConfigMap{ObjectMeta: meta("kubevirt-ca")},
		} {
			if err := w.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	secret := until(w, new(corev1.Secret), "virt-exportproxy-tls", "the certificate", func(*corev1.Secret) bool { return true })
	published := until(w, new(corev1.ConfigMap), "kubevirt-ca", "the authority", func(*corev1.ConfigMap) bool { return true })
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(published.Data["ca-bundle"]))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "virt-exportproxy." + namespace + ".svc"}); err != nil {
		t.Error(err)
	}
	e := until(w, new(exportapi.VirtualMachineExport), "outside", "links for clients outside", func(e *exportapi.VirtualMachineExport) bool {
		return e.Status.Links != nil && e.Status.Links.External != nil && e.Status.Links.External.Cert != ""
	})
	const want = "https://exports.example.com/api/export.kubevirt.io/v1beta1/namespaces/" + namespace + "/virtualmachineexports/outside/volumes/outside/disk.tar.gz"
	if v := e.Status.Links.External.Volumes; len(v) != 1 || !slices.ContainsFunc(v[0].Formats, func(f exportapi.VirtualMachineExportVolumeFormat) bool { return f.Url == want }) {
		t.Errorf("volumes %+v", v)
	}
	if err := w.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	untilGone(w, e, "outside")
}
