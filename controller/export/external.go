package export

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/shim/fields"
)

const (
	// ProxyService is the name of the export proxy's Service, which is KubeVirt's.
	ProxyService = "virt-exportproxy"
	// externalRoot is the path of exports at the proxy, with the version that KubeVirt's links have.
	externalRoot = "/api/export.kubevirt.io/v1beta1/"
	// keyAuthorities is the key of a TLS Secret under which its issuer may put authorities.
	keyAuthorities = "ca.crt"
	// maxCertificates bounds how many certificates of a Secret a link has.
	maxCertificates = 16
)

// external is where clients outside of the cluster reach the export proxy.
type external struct {
	host string
	// authority has the certificates that they trust, in PEM; "" for those that their systems trust.
	authority string
}

// base returns the URL of an export at the proxy.
func (x *external) base(e *vmExport) string {
	return "https://" + x.host + externalRoot + "namespaces/" + e.Namespace + "/virtualmachineexports/" + e.Name
}

// ingresses finds the Ingress of the export proxy. It reads nothing else while the proxy's Service does
// not exist.
type ingresses struct {
	live client.Reader
	// namespace is the proxy's; "" if the controller knows none.
	namespace string
	events    events.EventRecorder
	now       func() time.Time
}

// outside returns where an export's clients outside reach the proxy, nil for nowhere, and whether that is
// known. If not, an event of the export says why: clients in the cluster do not need the proxy.
func (i *ingresses) outside(ctx context.Context, w *work) (x *external, known bool) {
	x, err := i.find(ctx)
	if err != nil {
		i.events.Eventf(w.e, nil, corev1.EventTypeWarning, "ExternalLinksFailed", "Export", "%s",
			fields.Clip(fmt.Sprintf("Cannot find the export proxy's host: %v", err), maxMessage))
	}
	return x, err == nil
}

// find returns where the proxy is reached from outside; nil for nowhere.
func (i *ingresses) find(ctx context.Context) (*external, error) {
	if i.namespace == "" {
		return nil, nil
	}
	err := i.live.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: ProxyService}, new(corev1.Service))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the export proxy's service: %w", err)
	}
	var found *external
	empty := func() *networkingv1.IngressList { return new(networkingv1.IngressList) }
	err = pages.Each(ctx, i.live, i.namespace, empty, func(page *networkingv1.IngressList) (bool, error) {
		for n := range page.Items {
			if host := hostOf(&page.Items[n].Spec); host != "" {
				authority, err := i.authority(ctx, &page.Items[n].Spec, host)
				found = &external{host, authority}
				return true, err
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ingresses of the export proxy: %w", err)
	}
	return found, nil
}

// authority returns the certificates of the Secret by which an Ingress serves a host. Without one, or
// without certificates in it, clients trust those of their systems.
func (i *ingresses) authority(ctx context.Context, of *networkingv1.IngressSpec, host string) (string, error) {
	name := secretOf(of, host)
	if name == "" {
		return "", nil
	}
	secret := new(corev1.Secret)
	err := i.live.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the certificate of host %s: %w", host, err)
	}
	return valid(slices.Concat(secret.Data[corev1.TLSCertKey], []byte("\n"), secret.Data[keyAuthorities]), i.now()), nil
}

// valid returns the certificates of a text that are valid at a time, in PEM.
func valid(text []byte, now time.Time) string {
	var all []byte
	for n := 0; n < maxCertificates; {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.Before(c.NotBefore) || now.After(c.NotAfter) {
			continue
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		n++
	}
	return strings.TrimSpace(string(all))
}

// hostOf returns the first host of an Ingress whose requests for exports go to the proxy; "" for none.
func hostOf(of *networkingv1.IngressSpec) string {
	byDefault := of.DefaultBackend != nil && isProxy(of.DefaultBackend)
	var known []string
	for _, rule := range of.Rules {
		known = append(known, rule.Host)
		if isHost(rule.Host) && reaches(rule, byDefault) {
			return rule.Host
		}
	}
	if !byDefault {
		return ""
	}
	for _, t := range of.TLS {
		for _, host := range t.Hosts {
			if isHost(host) && !slices.Contains(known, host) {
				return host
			}
		}
	}
	return ""
}

// isHost reports whether a URL can have a host of an Ingress.
func isHost(host string) bool { return host != "" && !strings.HasPrefix(host, "*") }

func isProxy(b *networkingv1.IngressBackend) bool {
	return b.Service != nil && b.Service.Name == ProxyService
}

// reaches reports whether a rule sends requests for exports to the proxy: by a path, or by the Ingress'
// default backend if no path covers them.
func reaches(rule networkingv1.IngressRule, byDefault bool) bool {
	if rule.HTTP == nil {
		return byDefault
	}
	covered := false
	for _, p := range rule.HTTP.Paths {
		if covers(p) {
			if isProxy(&p.Backend) {
				return true
			}
			covered = true
		}
	}
	return byDefault && !covered
}

// covers reports whether a path has those of exports below it.
func covers(p networkingv1.HTTPIngressPath) bool {
	if p.PathType == nil {
		return true
	}
	switch *p.PathType {
	case networkingv1.PathTypeExact:
		return false
	case networkingv1.PathTypePrefix:
		return strings.HasPrefix(externalRoot, strings.TrimSuffix(p.Path, "/")+"/")
	}
	return true // the Ingress controller's own patterns
}

// secretOf returns the name of the Secret by which an Ingress serves a host; "" for none.
func secretOf(of *networkingv1.IngressSpec, host string) string {
	rest := ""
	for _, t := range of.TLS {
		for _, name := range t.Hosts {
			_, parent, _ := strings.Cut(host, ".")
			if name == host || name == "*."+parent {
				return t.SecretName
			}
		}
		if len(t.Hosts) == 0 && rest == "" {
			rest = t.SecretName // of all hosts
		}
	}
	return rest
}
