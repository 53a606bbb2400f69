package export

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const (
	proxyNamespace = "nodevirt"
	externalOut    = "https://exports.example.com/api/export.kubevirt.io/v1beta1/namespaces/default/virtualmachineexports/out"
)

func to(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 443}}}
}

// rule returns a rule with paths: pairs of a path and a Service. A path that begins with = is exact.
func rule(host string, paths ...string) networkingv1.IngressRule {
	r := networkingv1.IngressRule{Host: host}
	if len(paths) > 0 {
		r.HTTP = new(networkingv1.HTTPIngressRuleValue)
	}
	for i := 0; i < len(paths); i += 2 {
		kind := networkingv1.PathTypePrefix
		plain, exact := strings.CutPrefix(paths[i], "=")
		if exact {
			kind = networkingv1.PathTypeExact
		}
		r.HTTP.Paths = append(r.HTTP.Paths, networkingv1.HTTPIngressPath{Path: plain, PathType: &kind, Backend: to(paths[i+1])})
	}
	return r
}

// outside adds the proxy's Service, and an Ingress with a certificate; authority is the certificate.
func (g *rig) outside(rules ...networkingv1.IngressRule) (ingress *networkingv1.Ingress, authority string) {
	g.t.Helper()
	a, cert, _, err := certs.ForServer([]string{"exports.example.com"}, g.now, g.now.Add(time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	old, _, _, err := certs.ForServer([]string{"exports.example.com"}, g.now.Add(-2*time.Hour), g.now.Add(-time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: proxyNamespace, Name: name} }
	ingress = &networkingv1.Ingress{ObjectMeta: in("exports"), Spec: networkingv1.IngressSpec{
		Rules: rules, TLS: []networkingv1.IngressTLS{{Hosts: []string{"other.example.com"}, SecretName: "other"}, {Hosts: []string{"exports.example.com"}, SecretName: "tls"}},
	}}
	g.Add(g.t, &corev1.Service{ObjectMeta: in(ProxyService)}, ingress,
		&corev1.Secret{ObjectMeta: in("tls"), Data: map[string][]byte{"tls.crt": append(old, cert...), "tls.key": []byte("key"), "ca.crt": a}})
	return ingress, strings.TrimSpace(string(cert) + string(a))
}

// TestExternal: as long as an Ingress of the export proxy exists, clients outside of the cluster find the
// export's volumes and manifests below its host.
func TestExternal(t *testing.T) {
	g := newRig(t)
	ingress, authority := g.outside(rule("exports.example.com", "/", ProxyService))
	g.pvc("data", block)
	g.vm("web", "data")
	g.export(kindVM, "web")
	g.expect(api.Pending, "PodPending")
	g.serves()
	if x := g.e.Status.Links.External; x == nil || x.Cert != authority {
		t.Fatalf("links %+v; want the certificate %s", x, authority)
	}
	if got, want := urls(g.e.Status.Links.External), "data raw "+externalOut+"/volumes/data/disk.img\ndata gzip "+externalOut+"/volumes/data/disk.img.gz\n"+
		"all "+externalOut+"/external/manifests/all\nauth-header-secret "+externalOut+"/external/manifests/secret"; got != want {
		t.Errorf("links\n%s\nwant\n%s", got, want)
	}
	var made string
	for _, s := range g.secrets() {
		made += string(s.Data[server.FileExternalManifests])
	}
	if strings.Contains(made, ".svc/") || !strings.Contains(made, `"url":"`+externalOut+`/volumes/data/disk.img.gz"`) || !strings.Contains(made, "BEGIN CERTIFICATE") {
		t.Errorf("manifests %s", made)
	}
	g.Writes()
	g.expect(api.Ready, "True PodReady")
	if got := g.Writes(); got != "" {
		t.Errorf("writes without a change: %s", got)
	}
	// The manifests of the pod have the former host.
	fakecluster.Change(t, g.Cluster, ingress, func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "new.example.com" })
	g.expect(api.Ready, "True PodReady")
	if got := urls(g.e.Status.Links.External); !strings.Contains(got, "https://new.example.com/") || strings.Contains(got, "manifests/all") || g.e.Status.Links.External.Cert != "" {
		t.Errorf("links\n%s", got)
	}
	if err := g.Delete(t.Context(), ingress); err != nil {
		t.Fatal(err)
	}
	g.expect(api.Ready, "True PodReady")
	if g.e.Status.Links.External != nil || g.e.Status.Links.Internal == nil {
		t.Errorf("links %+v", g.e.Status.Links)
	}
}

// TestExternalSystemTrust: manifests for a host whose certificate clients trust already name none.
func TestExternalSystemTrust(t *testing.T) {
	g := newRig(t)
	ingress, _ := g.outside(rule("exports.example.com", "/api", ProxyService))
	fakecluster.Change(t, g.Cluster, ingress, func(i *networkingv1.Ingress) { i.Spec.TLS = nil })
	g.pvc("data", block)
	g.vm("web", "data")
	g.export(kindVM, "web")
	g.expect(api.Pending, "PodPending")
	for _, s := range g.secrets() {
		if made := string(s.Data[server.FileExternalManifests]); strings.Contains(made, "ConfigMap") || strings.Contains(made, "certConfigMap") {
			t.Errorf("manifests %s", made)
		}
	}
	g.serves()
	if x := g.e.Status.Links.External; x == nil || x.Cert != "" {
		t.Errorf("links %+v", x)
	}
}

// TestExternalUnknown: the controller may not read Ingresses. The former links stay, and an event says why.
func TestExternalUnknown(t *testing.T) {
	g := newRig(t)
	g.outside(rule("exports.example.com", "/", ProxyService))
	g.pvc("data", block)
	g.export(kindPVC, "data")
	g.expect(api.Pending, "PodPending")
	g.serves()
	before := urls(g.e.Status.Links.External)
	g.r.ingresses.live = refusing{g.r.ingresses.live}
	g.Events()
	g.expect(api.Ready, "True PodReady")
	if got := urls(g.e.Status.Links.External); got != before {
		t.Errorf("links\n%s\nwant\n%s", got, before)
	}
	if got := g.Events(); !strings.Contains(got, "Cannot find the export proxy's host: list ingresses of the export proxy: refused") {
		t.Errorf("events %s", got)
	}
}

// refusing lists nothing.
type refusing struct{ client.Reader }

func (refusing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("refused")
}

// TestNoProxy: without the proxy's Service, no Ingress makes links.
func TestNoProxy(t *testing.T) {
	g := newRig(t)
	g.outside(rule("exports.example.com", "/", ProxyService))
	if err := g.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: proxyNamespace, Name: ProxyService}}); err != nil {
		t.Fatal(err)
	}
	g.pvc("data", block)
	g.export(kindPVC, "data")
	g.expect(api.Pending, "PodPending")
	g.serves()
	if g.e.Status.Links.External != nil {
		t.Errorf("links %+v", g.e.Status.Links.External)
	}
}

// TestHostOf: the host is one whose requests for exports go to the proxy.
func TestHostOf(t *testing.T) {
	mine := to(ProxyService)
	for name, tt := range map[string]struct {
		spec networkingv1.IngressSpec
		want string
	}{
		"none":             {networkingv1.IngressSpec{}, ""},
		"another service":  {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("a", "/", "web")}}, ""},
		"all paths":        {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("a", "/", "web"), rule("b", "/", ProxyService)}}, "b"},
		"its path":         {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("a", "/", "web", "/api/export.kubevirt.io", ProxyService)}}, "a"},
		"another path":     {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("a", "/ap", ProxyService, "=/", ProxyService)}}, ""},
		"no host":          {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("", "/", ProxyService)}}, ""},
		"wildcard":         {networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule("*.a", "/", ProxyService), rule("b.a", "/", ProxyService)}}, "b.a"},
		"default":          {networkingv1.IngressSpec{DefaultBackend: &mine, Rules: []networkingv1.IngressRule{rule("a", "/", "web"), rule("b")}}, "b"},
		"default of paths": {networkingv1.IngressSpec{DefaultBackend: &mine, Rules: []networkingv1.IngressRule{rule("a", "/web", "web")}}, "a"},
		"default of TLS": {networkingv1.IngressSpec{
			DefaultBackend: &mine, Rules: []networkingv1.IngressRule{rule("a", "/", "web")}, TLS: []networkingv1.IngressTLS{{Hosts: []string{"*.x", "a", "c"}}},
		}, "c"},
		"default without a host": {networkingv1.IngressSpec{DefaultBackend: &mine}, ""},
	} {
		if got := hostOf(&tt.spec); got != tt.want {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}

// TestSecretOf: the Secret is that of the host, of its wildcard, or of all hosts.
func TestSecretOf(t *testing.T) {
	all := &networkingv1.IngressSpec{TLS: []networkingv1.IngressTLS{
		{SecretName: "rest"}, {Hosts: []string{"b.example.com"}, SecretName: "b"}, {Hosts: []string{"*.example.com"}, SecretName: "wild"},
	}}
	for host, want := range map[string]string{"b.example.com": "b", "c.example.com": "wild", "example.org": "rest"} {
		if got := secretOf(all, host); got != want {
			t.Errorf("%s: %q; want %q", host, got, want)
		}
	}
}
